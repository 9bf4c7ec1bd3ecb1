package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/server"
	"github.com/statemesh/statemesh/store"
)

const (
	delays = store.Name("delays-per-hour")
	visits = store.Name("visits")
	prices = store.Name("prices")
)

func hour(h int) time.Time { return time.Date(2013, 1, 1, h, 0, 0, 0, time.UTC) }

// timedFleet has 24 hourly windows, three sessions and three versions for each of some airports.
func timedFleet(airports ...string) *fleet {
	return startTimedFleet(server.Config{}, airports)
}

func startTimedFleet(limits server.Config, airports []string) *fleet {
	f := startFleetWith(limits, "a", "b", "c")
	for i, airport := range airports {
		for h := range 24 {
			f.putTimed(delays, store.KindTimestampedWindow, airport, hour(h).UnixMilli(), hour(h+1).UnixMilli(), int64(100*i+h))
		}
		for h := range 3 {
			f.putTimed(visits, store.KindSession, airport, hour(2*h).UnixMilli(), hour(2*h+1).UnixMilli(), int64(h))
		}
		f.putTimed(prices, store.KindVersioned, airport, hour(0).UnixMilli(), hour(5).UnixMilli(), 10)
		f.putTimed(prices, store.KindVersioned, airport, hour(5).UnixMilli(), hour(7).UnixMilli(), 11)
		f.putTimed(prices, store.KindVersioned, airport, hour(9).UnixMilli(), store.NoEnd, 12)
	}
	f.mu.Lock()
	f.epoch++
	f.mu.Unlock()
	f.publish("a", "b", "c")
	return f
}

func open(t *testing.T, f *fleet) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Seeds: f.seeds()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// lines are the rows of a scan: key, start, end, value.
func lines(t *testing.T, rows iter.Seq2[client.Item[string, int64], error]) []string {
	t.Helper()
	var out []string
	for r, err := range rows {
		if err != nil {
			t.Fatal(err)
		}
		end := "-"
		if !r.Span.End.IsZero() {
			end = r.Span.End.Format("15:04")
		}
		out = append(out, fmt.Sprintf("%s %s-%s %d", r.Key, r.Span.Start.Format("15:04"), end, r.Value))
	}
	return out
}

// Typed access to each kind over real servers: straight at the owners, and merged by one of them.
func TestTimedViews(t *testing.T) {
	f := timedFleet("ATL", "JFK", "ORD", "SFO")
	defer f.close()
	c := open(t, f)
	windows := client.NewWindowView(c, delays, serde.String(), serde.Int64())
	sessions := client.NewSessionView(c, visits, serde.String(), serde.Int64())
	versions := client.NewVersionView(c, prices, serde.String(), serde.Int64())
	ctx := t.Context()

	w, a, err := windows.Fetch(ctx, "JFK", hour(6))
	if err != nil || w.Value != 106 || w.Span != (client.Span{Start: hour(6), End: hour(7)}) || w.Timestamp != hour(6).UnixMilli() || a.Facts.Role != store.RoleActive {
		t.Errorf("%+v, %+v, %v", w, a, err)
	}
	if _, _, err := windows.Fetch(ctx, "JFK", hour(6).Add(time.Minute)); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	s, _, err := sessions.Fetch(ctx, "ORD", hour(2), hour(3))
	if err != nil || s.Value != 1 || s.Span != (client.Span{Start: hour(2), End: hour(3)}) {
		t.Errorf("%+v, %v", s, err)
	}
	v, _, err := versions.Get(ctx, "SFO")
	if err != nil || v.Value != 12 || v.Span != (client.Span{Start: hour(9)}) {
		t.Errorf("%+v, %v", v, err)
	}
	v, _, err = versions.GetAsOf(ctx, "SFO", hour(7).Add(-time.Millisecond))
	if err != nil || v.Value != 11 || v.Span != (client.Span{Start: hour(5), End: hour(7)}) {
		t.Errorf("%+v, %v", v, err)
	}
	if _, _, err := versions.GetAsOf(ctx, "SFO", hour(8)); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	for name, opts := range map[string][]client.Option{"owners": nil, "one instance": {client.ViaAny()}} {
		for _, c := range []struct {
			got  []string
			want []string
		}{
			{lines(t, windows.Of(ctx, "ATL", hour(22), time.Time{}, opts...)), []string{"ATL 22:00-23:00 22", "ATL 23:00-00:00 23"}},
			{
				lines(t, windows.Scan(ctx, client.WindowQuery{From: hour(3), To: hour(3), Page: client.Page{Reverse: true}}, opts...)),
				[]string{"SFO 03:00-04:00 303", "ORD 03:00-04:00 203", "JFK 03:00-04:00 103", "ATL 03:00-04:00 3"},
			},
			{
				lines(t, windows.Scan(ctx, client.WindowQuery{KeyFrom: []byte("B"), KeyTo: []byte("K"), Page: client.Page{Limit: 2}}, opts...)),
				[]string{"JFK 00:00-01:00 100", "JFK 01:00-02:00 101"},
			},
			{lines(t, windows.Scan(ctx, client.WindowQuery{From: hour(3), To: hour(2)}, opts...)), nil},
			{lines(t, sessions.Of(ctx, "ATL", opts...)), []string{"ATL 00:00-01:00 0", "ATL 02:00-03:00 1", "ATL 04:00-05:00 2"}},
			{
				lines(t, sessions.Scan(ctx, client.SessionQuery{EarliestEnd: hour(3), LatestStart: hour(3)}, opts...)),
				[]string{"ATL 02:00-03:00 1", "JFK 02:00-03:00 1", "ORD 02:00-03:00 1", "SFO 02:00-03:00 1"},
			},
			{lines(t, versions.History(ctx, "JFK", time.Time{}, time.Time{}, opts...)), []string{"JFK 00:00-05:00 10", "JFK 05:00-07:00 11", "JFK 09:00-- 12"}},
			{lines(t, versions.History(ctx, "JFK", hour(5), hour(8), opts...)), []string{"JFK 05:00-07:00 11"}},
		} {
			if !slices.Equal(c.got, c.want) {
				t.Errorf("%s: %q, want %q", name, c.got, c.want)
			}
		}
	}
	if all := lines(t, windows.Scan(ctx, client.WindowQuery{})); len(all) != 4*24 {
		t.Errorf("%d windows", len(all))
	}
}

// Many values of different owners, one request each; counts; and the errors of the wrong query.
func TestTimedBatchAndCount(t *testing.T) {
	f := timedFleet("ATL", "JFK", "ORD", "SFO")
	defer f.close()
	c := open(t, f)
	ctx := t.Context()
	var points []client.Point
	for _, airport := range []string{"ATL", "JFK", "ORD", "SFO", "XXX"} {
		points = append(points, client.InWindow([]byte(airport), hour(6)), client.InWindow([]byte(airport), hour(6).Add(1e9)))
	}
	got, err := c.BatchFetch(ctx, delays, points)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range got {
		if want := i%2 == 0 && i < 8; l.Found != want || want && l.Span != (client.Span{Start: hour(6), End: hour(7)}) || l.Answer == nil {
			t.Errorf("%d: %+v", i, l)
		}
	}
	latest, err := c.BatchGet(ctx, prices, [][]byte{[]byte("ATL"), []byte("XXX")})
	if err != nil || !latest[0].Found || latest[1].Found || latest[0].Span.Start != hour(9) {
		t.Errorf("%+v, %v", latest, err)
	}
	exact, err := c.CountExact(ctx, delays)
	if err != nil || exact.Approximate != 4*24 || len(exact.Partitions) != partitions {
		t.Errorf("%+v, %v", exact, err)
	}
	if n, err := c.Count(ctx, visits); err != nil || n.Approximate != 12 || n.Partitions[0].Bytes != -1 {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := c.CountExact(ctx, prices); !errors.Is(err, store.ErrWrongKind) {
		t.Error(err)
	}
	for name, call := range map[string]func() error{
		"get":           func() error { _, err := c.Get(ctx, delays, []byte("ATL")); return err },
		"window fetch":  func() error { _, err := c.FetchWindow(ctx, visits, []byte("ATL"), hour(1)); return err },
		"session fetch": func() error { _, err := c.FetchSession(ctx, flights, []byte("ATL"), hour(1), hour(2)); return err },
		"as-of get":     func() error { _, err := c.GetAsOf(ctx, delays, []byte("ATL"), hour(1)); return err },
		"version scan": func() error {
			for _, err := range c.ScanVersions(ctx, delays, client.VersionQuery{Key: []byte("ATL")}) {
				return err
			}
			return nil
		},
	} {
		e, ok := errors.AsType[*store.WrongKindError](call())
		if !ok || e.Query != name {
			t.Errorf("%s: %v", name, e)
		}
	}
	// A key that stands for nil selects nothing: it is refused, and does not select everything.
	raw := client.NewWindowView(c, delays, serde.Bytes(), serde.Int64())
	for _, err := range raw.Of(ctx, nil, time.Time{}, time.Time{}) {
		if !errors.Is(err, store.ErrInvalidKey) {
			t.Fatalf("the windows of no key: %v", err)
		}
	}
}

// A scan of windows goes on at the new owners, whatever moves, without losing or doubling one.
func TestScanWindowsAcrossMoves(t *testing.T) {
	var airports []string
	for i := range 40 {
		airports = append(airports, fmt.Sprintf("A%02d", i))
	}
	// A stream ends after 60 rows, so most of them begin at whoever owns the partitions by then.
	f := startTimedFleet(server.Config{MaxScanRows: 60, ScanChunkBytes: 1000}, airports)
	defer f.close()
	c := open(t, f)
	for _, reverse := range []bool{false, true} {
		var before []byte
		n := 0
		for r, err := range c.ScanWindows(t.Context(), delays, client.WindowQuery{Page: client.Page{Reverse: reverse}}) {
			if err != nil {
				t.Fatalf("after %d: %v", n, err)
			}
			if n%100 == 50 {
				from, to := []string{"a", "b", "c"}[n/100%3], []string{"b", "c", "a"}[n/100%3]
				f.move(to, f.owned(from)...)
			}
			place := store.WindowKey(r.Key, r.Span.Start.UnixMilli(), 0)
			if n > 0 && bytes.Compare(place, before) > 0 == reverse {
				t.Fatalf("row %d out of order", n)
			}
			before = place
			n++
		}
		if n != 40*24 {
			t.Errorf("reverse %v: %d rows, want %d", reverse, n, 40*24)
		}
	}
}

// A session never reads backwards: what an answer showed, the next one shows, or the read is refused.
func TestReadSession(t *testing.T) {
	f := timedFleet("ATL")
	defer f.close()
	c := open(t, f)
	ctx := t.Context()
	key := []byte("AA")
	f.put("AA", 7)
	at := func(n store.Offset) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for p := range store.Partition(partitions) {
			f.next[p] = n
		}
	}
	s := client.NewReadSession()
	in := client.InReadSession(s)
	at(5)
	r, err := c.Get(ctx, flights, key, in)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Token(flights); got.Cuts[r.Answer.Partition].Next != 5 || len(got.Cuts) != 1 {
		t.Errorf("after one read: %s", got)
	}
	at(4) // the owner lost what it had said
	if _, err := c.Get(ctx, flights, key, in, client.NoCache()); !errors.Is(err, store.ErrBehind) {
		t.Errorf("behind: %v", err)
	}
	if _, err := c.Get(ctx, flights, key, client.NoCache()); err != nil {
		t.Errorf("without the session: %v", err)
	}
	at(6)
	if _, err := c.BatchGet(ctx, flights, [][]byte{key, []byte("ZZ")}, in); err != nil {
		t.Error(err)
	}
	for _, err := range c.Scan(ctx, flights, client.ScanQuery{}, in) {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := c.FetchWindow(ctx, delays, []byte("ATL"), hour(50), in); !errors.Is(err, store.ErrNotFound) {
		t.Error(err) // an absence is an answer, too
	}
	got := s.Token(flights)
	for p := range store.Partition(partitions) {
		if got.Cuts[p].Next != 6 {
			t.Errorf("partition %d: %s", p, got)
		}
	}
	if other := s.Token(delays); len(other.Cuts) != 1 {
		t.Errorf("tokens of different stores mix: %s", other)
	}
	s.Wrote(flights, "in", 3, 17)
	name, carried, err := client.DecodeToken(client.EncodeToken(flights, s.Token(flights)))
	if err != nil || name != flights || carried.Inputs["in"][3] != 17 || len(carried.Cuts) != partitions {
		t.Errorf("%s, %v", carried, err)
	}
	if _, _, err := client.DecodeToken([]byte("x")); !errors.Is(err, store.ErrInvalidRequest) {
		t.Error(err)
	}
}
