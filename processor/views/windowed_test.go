package views

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/decode"
	"github.com/statemesh/statemesh/store"
)

const ms = time.Millisecond

// windowsOf shows the windows or sessions of a view as "key[start,end)=value@timestamp".
func (m *mesh) windowsOf(v View) string {
	m.t.Helper()
	spec := v.Spec()
	var it store.Iterator
	end := ")"
	if spec.Kind == store.KindSession {
		s, err := m.state.Session(spec.Name)
		if err != nil {
			m.t.Fatal(err)
		}
		end = "]"
		it, err = s.Scan(store.SessionScan{LatestEnd: math.MaxInt64, LatestStart: math.MaxInt64})
		if err != nil {
			m.t.Fatal(err)
		}
	} else {
		w, err := m.state.Window(spec.Name)
		if err != nil {
			m.t.Fatal(err)
		}
		if it, err = w.Scan(store.WindowScan{To: math.MaxInt64}); err != nil {
			m.t.Fatal(err)
		}
	}
	defer it.Close()
	var rows []string
	for it.Next() {
		e := it.Entry()
		row := fmt.Sprintf("%s[%d,%d%s=%s", e.Key, e.Start, e.End, end, show(spec.ValueFormat, e.Data))
		if spec.Kind != store.KindSession { // the end of a session is its time
			row += fmt.Sprintf("@%d", e.Timestamp)
		}
		rows = append(rows, row)
	}
	if err := it.Err(); err != nil {
		m.t.Fatal(err)
	}
	return strings.Join(rows, " ")
}

// times makes records of key k at these times.
func times(at ...int64) []processor.Record {
	records := make([]processor.Record, len(at))
	for i, t := range at {
		records[i] = rec(t, "k", `{"n":`+fmt.Sprint(t)+`}`)
	}
	return records
}

func TestWindows(t *testing.T) {
	t.Parallel()
	gap := int64(300000)
	for _, tt := range []struct {
		name    string
		typ     Type
		window  Window
		records []processor.Record
		want    string
		drops   string
	}{
		{
			"tumbling", Count,
			Window{Tumbling: 12 * ms},
			times(21, 11, 12, 23, 24),
			"k[12,24)=3@23 k[24,36)=1@24", "late",
		},
		{"T4/46 hopping", Count, Window{Hopping: 12 * ms, Advance: 5 * ms, Grace: time.Hour}, times(21), "k[10,22)=1@21 k[15,27)=1@21 k[20,32)=1@21", ""},
		{
			// At stream time 27 the windows [10,22) and [15,27) are closed and [20,32) is not.
			"hopping, late for some", Count,
			Window{Hopping: 12 * ms, Advance: 5 * ms},
			times(27, 21, 14),
			"k[20,32)=2@27 k[25,37)=1@27", "late, late for some of its windows",
		},
		{"closed at end + grace, not before", Count, Window{Tumbling: 10 * ms, Grace: 5 * ms}, times(9, 14, 9), "k[0,10)=2@9 k[10,20)=1@14", ""},
		{"closed at end + grace", Count, Window{Tumbling: 10 * ms, Grace: 5 * ms}, times(9, 15, 9), "k[0,10)=1@9 k[10,20)=1@15", "late"},
		{"sum", Sum, Window{Tumbling: 10 * ms, Grace: time.Second}, times(1, 12, 3), "k[0,10)=4@3 k[10,20)=12@12", ""},
		{"min", Min, Window{Tumbling: 10 * ms, Grace: time.Second}, times(5, 3, 9), "k[0,10)=3@9", ""},
		{
			"stats", StatsOf,
			Window{Tumbling: 10 * ms},
			times(1, 3),
			`k[0,10)={"count":2,"sum":4,"min":1,"max":3,"avg":2}@3`, "",
		},
		{
			"T4/52 sliding", Count,
			Window{Sliding: 10 * ms, Grace: 50 * ms},
			times(10, 10, 14, 15, 20, 22, 30),
			"k[0,11)=2@10 k[4,15)=3@14 k[5,16)=4@15 k[10,21)=5@20 k[11,22)=3@20 k[12,23)=4@22 k[15,26)=3@22 k[16,27)=2@22 k[20,31)=3@30 k[21,32)=2@30 k[23,34)=1@30", "",
		},
		{
			"T4/54 sliding", Max,
			Window{Sliding: 10 * ms, Grace: 50 * ms},
			times(10, 14, 15, 22, 26, 30),
			"k[0,11)=10@10 k[4,15)=14@14 k[5,16)=15@15 k[11,22)=15@15 k[12,23)=22@22 k[15,26)=22@22 k[16,27)=26@26 k[20,31)=30@30 k[23,34)=30@30 k[27,38)=30@30", "",
		},
		{"sliding, late", Count, Window{Sliding: 10 * ms, Grace: 5 * ms}, times(100, 84, 85), "k[90,101)=1@100", "late*2"},
		{"T5/63 sessions", Count, Window{Session: 300 * time.Second, Grace: time.Hour}, times(0, gap+1), "k[0,0]=1 k[300001,300001]=1", ""},
		{"T5/64 one joins two", Count, Window{Session: 300 * time.Second, Grace: time.Hour}, times(0, gap+1, gap/2), "k[0,300001]=3", ""},
		{"T5/65", Count, Window{Session: 300 * time.Second, Grace: time.Hour}, times(0, 100), "k[0,100]=2", ""},
		{"T5/66 uncached", Count, Window{Session: 5 * ms}, times(0, 5), "k[0,5]=2", ""},
		{"T5/67", Count, Window{Session: 5 * ms}, times(7, 7), "k[7,7]=2", ""},
		{"a gap apart is together", Sum, Window{Session: 10 * ms}, times(1, 11, 22), "k[1,11]=12 k[22,22]=22", ""},
		{
			"merged statistics", StatsOf,
			Window{Session: 10 * ms, Grace: time.Hour},
			times(1, 21, 11),
			`k[1,21]={"count":3,"sum":33,"min":1,"max":21,"avg":11}`, "",
		},
		{"merged averages", Avg, Window{Session: 10 * ms, Grace: time.Hour}, times(1, 21, 11), `k[1,21]={"count":3,"sum":33,"avg":11}`, ""},
		{"one joins three", Count, Window{Session: 10 * ms, Grace: time.Hour}, times(2, 30, 12, 40, 50, 21), "k[2,50]=6", ""},
		{"merged minima", Min, Window{Session: 10 * ms, Grace: time.Hour}, times(1, 21, 11), "k[1,21]=1", ""},
		// QS-08: a session is closed behind end + gap + grace.
		{"session, just in time", Count, Window{Session: 10 * ms, Grace: 5 * ms}, times(100, 85), "k[85,85]=1 k[100,100]=1", ""},
		{"session, late", Count, Window{Session: 10 * ms, Grace: 5 * ms}, times(100, 84), "k[100,100]=1", "late"},
		{"late, but joins what is open", Count, Window{Session: 10 * ms}, times(95, 100, 86), "k[86,100]=3", ""},
		{
			"what no aggregate takes", Count, Window{Tumbling: 10 * ms}, []processor.Record{
				rec(1, "<nil>", "{}"), rec(1, "", "{}"), rec(1, "k", "<nil>"), rec(1, "k", "{}"),
			}, "k[0,10)=1@1", "empty key, null key, null value",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := View{Name: "v", Topic: "t", Format: JSON, Type: tt.typ, Window: tt.window}
			if tt.typ.ofField() {
				v.Field = "n"
			}
			m := newMesh(t, v)
			m.mustProcess(tt.records...)
			if got := m.windowsOf(v); got != tt.want {
				t.Errorf("%s\nwant\n%s", got, tt.want)
			}
			if got := m.reasons(); got != tt.drops {
				t.Errorf("dropped %s, want %s", got, tt.drops)
			}
		})
	}
}

// A sum that would leave float64 refuses the record in that window, and it is counted once.
func TestWindowsRefuseOverflow(t *testing.T) {
	t.Parallel()
	huge := func(ts int64) processor.Record { return rec(ts, "k", `{"n":1.7e308}`) }
	for name, w := range map[string]Window{
		"hopping": {Hopping: 10 * ms, Advance: 5 * ms}, "sliding": {Sliding: 10 * ms}, "session": {Session: 10 * ms},
	} {
		v := View{Name: "v", Topic: "t", Format: JSON, Type: Sum, Field: "n", Window: w}
		m := newMesh(t, v)
		m.mustProcess(huge(20), huge(20))
		if got := m.reasons(); got != "sum out of range" {
			t.Errorf("%s: dropped %s", name, got)
		}
		if !strings.Contains(m.windowsOf(v), "=1.7e+308") || strings.Contains(m.windowsOf(v), "Inf") {
			t.Errorf("%s: %s", name, m.windowsOf(v))
		}
	}
	// Two sessions that cannot become one stay two.
	v := View{Name: "v", Topic: "t", Format: JSON, Type: Sum, Field: "n", Window: Window{Session: 10 * ms, Grace: time.Hour}}
	m := newMesh(t, v)
	m.mustProcess(huge(0), huge(20), rec(10, "k", `{"n":1}`))
	if got := m.windowsOf(v); got != "k[0,0]=1.7e+308 k[20,20]=1.7e+308" || m.reasons() != "sum out of range" {
		t.Errorf("%s, dropped %s", got, m.reasons())
	}
}

func TestWindowSpecs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		window          Window
		kind            store.Kind
		size, retention time.Duration
	}{
		{Window{Tumbling: time.Hour}, store.KindTimestampedWindow, time.Hour, 24 * time.Hour},
		{Window{Hopping: 30 * time.Hour, Advance: time.Hour, Grace: time.Hour}, store.KindTimestampedWindow, 30 * time.Hour, 31 * time.Hour},
		{Window{Sliding: time.Hour}, store.KindTimestampedWindow, time.Hour + ms, 24 * time.Hour},
		{Window{Session: 30 * time.Minute, Retention: 48 * time.Hour}, store.KindSession, 0, 48 * time.Hour},
	} {
		s := View{Name: "v", Type: Count, Window: tt.window}.Spec()
		if s.Kind != tt.kind || s.WindowSize != tt.size || s.Retention != tt.retention || s.Validate() != nil {
			t.Errorf("%+v: %+v, %v", tt.window, s, s.Validate())
		}
	}
}

func TestEventTime(t *testing.T) {
	t.Parallel()
	jsonView := View{Format: JSON, Timestamp: "at"}
	csvView := View{Format: CSV, Columns: []string{"a", "at"}, Timestamp: "at"}
	for _, tt := range []struct {
		view   View
		value  string
		want   int64
		reason string
	}{
		{jsonView, `{"at":1357035300000}`, 1357035300000, ""},
		{jsonView, `{"at":1.3570353e12}`, 1357035300000, ""},
		{jsonView, `{"at":"2013-01-01T10:15:00Z"}`, 1357035300000, ""},
		{jsonView, `{"at":"2013-01-01T12:15:00.5+02:00"}`, 1357035300500, ""},
		{jsonView, `{"at":"1357035300000"}`, 1357035300000, ""},
		{csvView, "x,1357035300000", 1357035300000, ""},
		{csvView, "x,2013-01-01T10:15:00Z", 1357035300000, ""},
		{csvView, "x,", 0, decode.ReasonNoTime},
		{jsonView, `{}`, 0, decode.ReasonNoTime},
		{jsonView, `{"at":null}`, 0, decode.ReasonNoTime},
		{jsonView, `{"at":1.5}`, 0, decode.ReasonBadTime},
		{jsonView, `{"at":1e30}`, 0, decode.ReasonBadTime},
		{jsonView, `{"at":true}`, 0, decode.ReasonBadTime},
		{jsonView, `{"at":"yesterday"}`, 0, decode.ReasonBadTime},
		{jsonView, `{"at":-1}`, 0, decode.ReasonBadTime},
		{jsonView, `{"at":"1969-12-31T23:59:59Z"}`, 0, decode.ReasonBadTime},
		{jsonView, `{"at":`, 0, decode.ReasonJSON},
		{csvView, "x", 0, decode.ReasonColumns},
		{jsonView, "<nil>", 7, ""}, // a tombstone has its own
	} {
		r := rec(7, "k", tt.value)
		got, err := eventTime(tt.view)(&r, processor.RecordMetadata{}, -1)
		if reasonOf(err) != tt.reason || got != tt.want {
			t.Errorf("%s: %d, %v", tt.value, got, err)
		}
	}
}

// Whatever the order of arrival, sessions are the runs of records that are at most a gap apart.
func TestSessionsModel(t *testing.T) {
	t.Parallel()
	v := View{Name: "v", Topic: "t", Format: JSON, Type: Count, Window: Window{Session: 5 * ms, Grace: time.Hour}}
	m := newMesh(t, v)
	var want []string
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		at := make([]int64, 1+r.IntN(20))
		key := fmt.Sprintf("k%02d", seed)
		for i := range at {
			at[i] = r.Int64N(80)
			m.mustProcess(rec(at[i], key, "{}"))
		}
		slices.Sort(at)
		for i := 0; i < len(at); {
			n := i + 1
			for n < len(at) && at[n]-at[n-1] <= 5 {
				n++
			}
			want = append(want, fmt.Sprintf("%s[%d,%d]=%d", key, at[i], at[n-1], n-i))
			i = n
		}
	}
	if got := m.windowsOf(v); got != strings.Join(want, " ") {
		t.Errorf("%s\nwant\n%s", got, strings.Join(want, " "))
	}
}
