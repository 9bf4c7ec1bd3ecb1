package processor

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

// BenchmarkRead pins and releases a commit of a running owner: what a query costs before it reads anything. The token is one
// that the owner has met already.
func BenchmarkRead(b *testing.B) {
	f, in := benchOwner(b)
	token := func() store.Token {
		r, err := in.rt.Read(f.t.Context(), testStore, 0, store.ReadOptions{})
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		return r.Facts().Token
	}()
	for _, bench := range []struct {
		name string
		opts store.ReadOptions
	}{
		{"no token", store.ReadOptions{}},
		{"token", store.ReadOptions{AtLeast: token, Wait: time.Second}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := in.rt.Read(b.Context(), testStore, 0, bench.opts)
				if err != nil {
					b.Fatal(err)
				}
				r.Close()
			}
		})
	}
	b.Run("facts", func(b *testing.B) {
		r, err := in.rt.Read(b.Context(), testStore, 0, store.ReadOptions{})
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		b.ReportAllocs()
		for b.Loop() {
			_ = r.Facts()
		}
	})
}

// benchOwner is an instance that runs one task with some keys in its store.
func benchOwner(b *testing.B) (*fleet, *instance) {
	b.Helper()
	f := newFleet(b, false, 1)
	in := f.start("a")
	in.waitRunning()
	f.produce(truth{}, rand.New(rand.NewPCG(1, 1)), 100, 50)
	f.waitCaughtUp(20 * time.Second)
	return f, in
}
