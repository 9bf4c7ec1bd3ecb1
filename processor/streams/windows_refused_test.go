package streams_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// short is text of at most three letters.
func short() serde.Serde[string] {
	return serde.Of("short text", func(v string) ([]byte, error) {
		if len(v) > 3 {
			return nil, errors.New("too long")
		}
		return []byte(v), nil
	}, func(b []byte) (string, error) { return string(b), nil })
}

// joinedWindows runs records through windows of all text of a key, and returns what they say and what is kept.
func joinedWindows(t *testing.T, w windowing, values serde.Serde[string], opts []streams.Option, records ...string) (said []string, kept map[string][]byte, d *streamstest.Driver) {
	t.Helper()
	d = drive(t, streamstest.Config{ProcessingHandler: processor.Continue}, func(b *streams.Builder) {
		perKey := streams.GroupByKey(streams.From(b, "in", serde.String(), values))
		joined := streams.ReduceWindows(w.on(perKey), "joined", func(a, v string) string { return a + v }, opts...)
		streams.ToStream(joined).To("out")
	})
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), records...)
	kept = streamstest.ReadMap(streamstest.NewOutput(d, "streamstest-joined-changelog", serde.String(), serde.Bytes()))
	said = readWindows(d, w, serde.String())()
	d.Restart()
	return said, kept, d
}

// TestRefusedInOneWindow: a record that cannot be kept in one of its windows changes none of them, under a handler that goes on: neither
// those that were put before, nor sessions that were taken away to become part of it.
func TestRefusedInOneWindow(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	hopping, sliding := windows.Hopping(10*ms, 5*ms, 20*ms), windows.Sliding{Difference: 10 * ms, Grace: 20 * ms}
	session := windows.Session{Gap: 10 * ms, Grace: 20 * ms}
	atOnce := []streams.Option{streams.CachingDisabled()}
	for name, c := range map[string]struct {
		w    windowing
		opts []streams.Option
	}{
		"hopping, cached":        {by(hopping), nil},
		"hopping, told at once":  {by(hopping), atOnce},
		"hopping, told on close": {by(hopping, streams.OnWindowClose), nil},
		"sliding, cached":        {by(sliding), nil},
		"sliding, told at once":  {by(sliding), atOnce},
		"sliding, told on close": {by(sliding, streams.OnWindowClose), nil},
		"session, cached":        {bySessions(session), nil},
		"session, told at once":  {bySessions(session), atOnce},
		"session, told on close": {bySessions(session, streams.OnWindowClose), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, kept, d := joinedWindows(t, c.w, short(), c.opts, "a=xx@12", "a=yy@7", "a=z@8", "b=q@100")
			wantSaid, wantKept, _ := joinedWindows(t, c.w, short(), c.opts, "a=xx@12", "a=z@8", "b=q@100")
			if diff := cmp.Diff(wantSaid, said); diff != "" {
				t.Errorf("said (-without the record +with it)\n%s", diff)
			}
			if diff := cmp.Diff(wantKept, kept); diff != "" {
				t.Errorf("kept (-without the record +with it)\n%s", diff)
			}
			dropped := 0
			for _, n := range d.Dropped() {
				dropped += n
			}
			if dropped != 1 {
				t.Errorf("dropped %v, want one", d.Dropped())
			}
		})
	}
}

// TestTooLargeInOneWindow: so it is when the store refuses a value, after it has taken others.
func TestTooLargeInOneWindow(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	x, y, z := strings.Repeat("x", 600_000), strings.Repeat("y", 600_000), strings.Repeat("z", 200_000) // x and y are more than a record may be
	for name, w := range map[string]windowing{
		"hopping": by(windows.Hopping(10*ms, 5*ms, 20*ms)), "session": bySessions(windows.Session{Gap: 10 * ms, Grace: 20 * ms}),
		"hopping, told on close": by(windows.Hopping(10*ms, 5*ms, 20*ms), streams.OnWindowClose),
		"session, told on close": bySessions(windows.Session{Gap: 10 * ms, Grace: 20 * ms}, streams.OnWindowClose),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := []streams.Option{streams.CachingDisabled()}
			said, kept, d := joinedWindows(t, w, serde.String(), opts, "a="+x+"@12", "a="+y+"@7", "a="+z+"@8", "b=q@100")
			wantSaid, wantKept, _ := joinedWindows(t, w, serde.String(), opts, "a="+x+"@12", "a="+z+"@8", "b=q@100")
			if !slices.Equal(wantSaid, said) {
				t.Errorf("said %d lines, want %d, or others", len(said), len(wantSaid))
			}
			if !maps.EqualFunc(wantKept, kept, bytes.Equal) {
				t.Errorf("kept %d rows, want %d, or others", len(kept), len(wantKept))
			}
			if n := d.Dropped()["processing error"]; n != 1 {
				t.Errorf("dropped %v", d.Dropped())
			}
		})
	}
}
