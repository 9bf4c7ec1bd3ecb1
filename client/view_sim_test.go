package client

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

type flight struct {
	Carrier string `json:"carrier"`
	Delay   int    `json:"delay"`
}

func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 4, "a", "b")
		for _, carrier := range []string{"AA", "DL", "UA"} {
			b, err := json.Marshal(flight{Carrier: carrier, Delay: len(carrier)})
			if err != nil {
				t.Fatal(err)
			}
			m.put(carrier, string(b))
		}
		v := NewView(m.client(nil), counts, serde.String(), serde.JSON[flight]())
		f, a, err := v.GetAnswer(t.Context(), "UA")
		if err != nil || f != (flight{"UA", 2}) || a.Facts.Role != store.RoleActive {
			t.Fatal(f, a, err)
		}
		if _, err := v.Get(t.Context(), "ZZ"); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		items, err := v.BatchGet(t.Context(), []string{"ZZ", "AA"})
		if err != nil || items[0].Found || items[0].Key != "ZZ" || items[0].Timestamp != -1 ||
			!items[1].Found || items[1].Value.Carrier != "AA" || items[1].Timestamp != 7 {
			t.Fatal(items, err)
		}
		var got []string
		for it, err := range v.Range(t.Context(), "B", "Z") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, it.Key+it.Value.Carrier)
		}
		if strings.Join(got, " ") != "DLDL UAUA" {
			t.Fatal(got)
		}

		// What a serde cannot read is an error that names the store, wherever it turns up, and no zero value.
		m.put("bad", "{")
		wantDecode := func(err error) {
			t.Helper()
			if !errors.Is(err, serde.ErrDecode) || !strings.Contains(err.Error(), "store counts") {
				t.Fatal(err)
			}
		}
		_, err = v.Get(t.Context(), "bad")
		wantDecode(err)
		_, err = v.BatchGet(t.Context(), []string{"bad"})
		wantDecode(err)
		n := 0
		for _, err := range v.Scan(t.Context(), ScanQuery{}) {
			if n++; n == 4 {
				wantDecode(err)
			}
		}
		if n != 4 {
			t.Fatal(n)
		}
		for _, err := range NewView(m.client(nil), counts, serde.Int64(), serde.Bytes()).Scan(t.Context(), ScanQuery{}) {
			wantDecode(err)
		}
		odd := NewView(m.client(nil), counts, serde.JSON[func()](), serde.Bytes())
		if _, err := odd.Get(t.Context(), func() {}); !errors.Is(err, store.ErrInvalidKey) {
			t.Fatal(err)
		}
		if _, err := odd.BatchGet(t.Context(), []func(){nil}); !errors.Is(err, store.ErrInvalidKey) {
			t.Fatal(err)
		}
		for _, err := range odd.Range(t.Context(), nil, nil) {
			if !errors.Is(err, store.ErrInvalidKey) {
				t.Fatal(err)
			}
		}
	})
}

// A server that counts partitions otherwise has newer metadata: the client learns them and asks once more.
func TestWrongPartitionRefreshesTheMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		m.put("k", "v")
		c := m.client(nil)
		wantValue(t, c, "k", "v")
		a := m.member("a")
		var first atomic.Bool
		a.on(func(context.Context, string) error {
			if first.CompareAndSwap(false, true) {
				return &store.WrongPartitionError{Store: counts, Have: 0, Want: 1}
			}
			return nil
		})
		maps := a.maps.Load()
		wantValue(t, c, "k", "v")
		if a.maps.Load() != maps+1 {
			t.Fatal("the map was not asked for")
		}
		a.on(func(context.Context, string) error {
			return &store.WrongPartitionError{Store: counts, Have: 0, Want: 1}
		})
		calls := a.calls.Load()
		if _, err := c.Get(t.Context(), counts, []byte("k")); !errors.Is(err, store.ErrWrongPartition) || a.calls.Load() != calls+2 {
			t.Fatal(err, a.calls.Load()-calls)
		}
	})
}
