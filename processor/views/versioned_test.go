package views

import (
	"errors"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/decode"
	"github.com/statemesh/statemesh/store"
)

// A versioned table answers for any moment of its history, whatever order the records came in (T6/71 to T6/74, T6/81, by way of
// a view).
func TestVersionedTable(t *testing.T) {
	t.Parallel()
	v := View{Name: "v", Topic: "t", Format: CSV, Columns: []string{"temp", "wind"}, Type: Table, History: 100 * ms}
	m := newMesh(t, v)
	m.mustProcess(rec(10, "EWR", "5,"), rec(30, "EWR", "7,2"), rec(20, "EWR", "6,1"), rec(40, "EWR", "<nil>"), rec(1, "<nil>", "1,1"))
	s, err := m.state.Versioned("v")
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[int64]string{
		10: `{"temp":"5"}`, 19: `{"temp":"5"}`, 20: `{"temp":"6","wind":"1"}`, 29: `{"temp":"6","wind":"1"}`, 39: `{"temp":"7","wind":"2"}`,
	} {
		if got, err := s.GetAsOf([]byte("EWR"), at); err != nil || string(got.Data) != want {
			t.Errorf("as of %d: %s, %v, want %s", at, got.Data, err, want)
		}
	}
	for _, at := range []int64{9, 40, 1000} {
		if got, err := s.GetAsOf([]byte("EWR"), at); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("as of %d: %v, %v", at, got, err)
		}
	}
	if got := m.reasons(); got != "null key" {
		t.Errorf("dropped %s", got)
	}
	m.mustProcess(rec(200, "JFK", "1,1"), rec(100, "EWR", "8,"), rec(99, "EWR", "9,"))
	if got, err := s.Get([]byte("EWR")); err != nil || string(got.Data) != `{"temp":"8"}` || got.ValidTo != store.NoEnd {
		t.Error(got, err)
	}
	if got := m.reasons(); got != "null key, older than the history" {
		t.Errorf("dropped %s", got)
	}
	if spec := v.Spec(); spec.Kind != store.KindVersioned || spec.Retention != 100*time.Millisecond || spec.ValueFormat != "json" || spec.Validate() != nil {
		t.Error(spec, spec.Validate())
	}
}

// A global table judges its values itself: nothing is before it.
func TestGlobalTable(t *testing.T) {
	t.Parallel()
	v := View{Name: "v", Topic: "t", Format: CSV, Columns: []string{"name"}, Type: Table, Global: true}
	m := &mesh{t: t, stores: map[store.Name]*memory{"v": {rows: make(map[string]store.Value)}}}
	k := newGlobalKeeper(v)
	if err := k.init(&place{mesh: m, view: "v"}); err != nil {
		t.Fatal(err)
	}
	process := func(r processor.Record) error { return k.Process(&r) }
	if err := errors.Join(process(rec(1, "UA", "United")), process(rec(2, "AA", "American")), process(rec(3, "AA", "<nil>")), process(rec(3, "", "x"))); err != nil {
		t.Fatal(err)
	}
	if got := reasonOf(process(rec(4, "UA", "a,b"))); got != decode.ReasonColumns {
		t.Error(got)
	}
	if got := m.dump(v); got != `UA={"name":"United"}@1` || m.reasons() != "empty key" {
		t.Error(got, m.reasons())
	}
}
