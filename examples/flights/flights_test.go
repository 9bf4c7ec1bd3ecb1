package flights

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestRows(t *testing.T) {
	var n, noTailnum, noDelay int
	last := int64(0)
	for r, err := range Rows() {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if r.Number != n {
			t.Fatalf("row %d is numbered %d", n, r.Number)
		}
		if r.EventTime < last || r.EventTime%60_000 != 0 {
			t.Fatalf("row %d: event time %d after %d", n, r.EventTime, last)
		}
		last = r.EventTime
		if n == 1 {
			first := "1357035300000,UA,1545,N14228,EWR,IAH,2"
			if string(r.Value()) != first || r != (Row{
				Number: 1, EventTime: 1357035300000, Carrier: "UA", Flight: "1545",
				Tailnum: "N14228", Origin: "EWR", Dest: "IAH", DepDelay: "2", line: first,
			}) {
				t.Errorf("first row: %+v", r)
			}
		}
		if r.Tailnum == "" {
			noTailnum++
		}
		if r.DepDelay == "" {
			noDelay++
		}
	}
	if n != Count || last != 1388552340000 || noTailnum != 2512 || noDelay != 8255 {
		t.Errorf("%d rows until %d, %d without aircraft, %d without delay", n, last, noTailnum, noDelay)
	}
	if len(compressed) >= 4_000_000 {
		t.Errorf("%d bytes embedded, want less than 4 MB", len(compressed))
	}
}

func TestObject(t *testing.T) {
	r, err := parse(7, "1357035300000,UA,1545,,EWR,IAH,")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"event_time": "1357035300000", "carrier": "UA", "flight": "1545", "origin": "EWR", "dest": "IAH"}
	if got := r.Object(); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for _, line := range []string{"", "1,2,3,4,5,6", "1,2,3,4,5,6,7,8", "x,2,3,4,5,6,7"} {
		if _, err := parse(1, line); err == nil {
			t.Errorf("%q is taken", line)
		}
	}
}

// The answers were computed by SQLite out of the same flights; testdata holds them.
func TestComputeAgreesWithSQLite(t *testing.T) {
	a, err := Compute(Rows())
	if err != nil {
		t.Fatal(err)
	}
	if a.Rows != Count {
		t.Errorf("%d rows", a.Rows)
	}
	same(t, "flights_by_dest.csv", "dest,flights", counts(a.ByDest))
	same(t, "flights_by_carrier.csv", "carrier,flights", counts(a.ByCarrier))
	var delays []string
	for _, c := range slices.Sorted(maps.Keys(a.DelayByCarrier)) {
		d := a.DelayByCarrier[c]
		delays = append(delays, fmt.Sprintf("%s,%d,%d,%d,%d,%s", c, d.Count, d.Sum, d.Min, d.Max,
			strconv.FormatFloat(d.Mean(), 'g', -1, 64)))
	}
	same(t, "dep_delay_by_carrier.csv", "carrier,n,sum,min,max,mean", delays)
	latest := []string{"tailnum,event_time_ms,carrier,flight,origin,dest,dep_delay,row"}
	for _, tail := range slices.Sorted(maps.Keys(a.LatestByTailnum)) {
		r := a.LatestByTailnum[tail]
		latest = append(latest, fmt.Sprintf("%s,%d,%s,%s,%s,%s,%s,%d", tail, r.EventTime, r.Carrier, r.Flight, r.Origin, r.Dest,
			r.DepDelay, r.Number))
	}
	want, err := os.ReadFile(filepath.Join("testdata", "latest_by_tailnum.sha256"))
	if err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(latest, "\n")+"\n")))
	if hash, _, _ := strings.Cut(string(want), " "); hash != sum || len(latest) != 4044 {
		t.Errorf("latest by tailnum: %d rows with hash %s, want 4043 with %s", len(latest)-1, sum, hash)
	}
}

func counts(m map[string]int64) []string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s,%d", k, m[k]))
	}
	return lines
}

func same(t *testing.T, name, header string, lines []string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	got := header + "\n" + strings.Join(lines, "\n") + "\n"
	if got != string(bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))) {
		t.Errorf("%s differs; computed:\n%s", name, got)
	}
}

func TestComputeStopsAtAnError(t *testing.T) {
	bad := errors.New("bad")
	for name, rows := range map[string]func(func(Row, error) bool){
		"row":   func(yield func(Row, error) bool) { yield(Row{}, bad) },
		"delay": func(yield func(Row, error) bool) { yield(Row{Carrier: "UA", DepDelay: "late"}, nil) },
	} {
		if a, err := Compute(rows); err == nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestCSVReadsAsColumns(t *testing.T) {
	data, err := CSV()
	if err != nil {
		t.Fatal(err)
	}
	r := csv.NewReader(data)
	r.FieldsPerRecord = len(Columns())
	rows, err := r.ReadAll()
	if err != nil || len(rows) != Count {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

func BenchmarkRows(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range Rows() {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		b.ReportMetric(float64(n), "rows/op")
	}
}
