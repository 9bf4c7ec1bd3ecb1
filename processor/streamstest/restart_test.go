package streamstest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// everything writes to stores of every kind, as the record's value says: puts, deletes, late ones, some that expire at once.
func everything(ctx *processor.Context, r *processor.Record) error {
	var op, at int64
	if _, err := fmt.Sscan(string(r.Value), &op, &at); err != nil {
		return err
	}
	v := store.Value{Data: r.Value, Timestamp: at}
	if op%4 == 0 {
		v.Data = nil
	}
	plain, err := ctx.Store("plain")
	if err != nil {
		return err
	}
	stamped, err := ctx.Store("stamped")
	if err != nil {
		return err
	}
	windows, err := ctx.WindowStore("windows")
	if err != nil {
		return err
	}
	many, err := ctx.WindowStore("many")
	if err != nil {
		return err
	}
	sessions, err := ctx.SessionStore("sessions")
	if err != nil {
		return err
	}
	versions, err := ctx.VersionedStore("versions")
	if err != nil {
		return err
	}
	_, err = versions.Put(r.Key, v)
	return errors.Join(err, plain.Put(r.Key, v), stamped.Put(r.Key, v), windows.Put(r.Key, at/10*10, v), many.Put(r.Key, at/10*10, v),
		sessions.Put(r.Key, at, at+op%5, v))
}

// TestRestartModel: whatever is put into stores of every kind, a restart finds it in the changelogs, byte for byte.
func TestRestartModel(t *testing.T) {
	t.Parallel()
	const retention, segment = 100 * time.Millisecond, 50 * time.Millisecond
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").AddProcessor("p", supply(node{process: everything}), "in")
	for _, spec := range []store.Spec{
		{Name: "plain", Kind: store.KindKeyValue, Caching: true},
		{Name: "stamped", Kind: store.KindTimestampedKeyValue},
		{Name: "windows", Kind: store.KindTimestampedWindow, WindowSize: 10 * time.Millisecond, Retention: retention, SegmentInterval: segment, Caching: true},
		{Name: "many", Kind: store.KindWindow, WindowSize: 10 * time.Millisecond, Retention: retention, SegmentInterval: segment, RetainDuplicates: true},
		{Name: "sessions", Kind: store.KindSession, Retention: retention, SegmentInterval: segment},
		{Name: "versions", Kind: store.KindVersioned, Retention: retention, SegmentInterval: segment},
	} {
		topology.AddStateStore(spec, "p")
	}
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7))
			d := streamstest.NewT(t, topology, streamstest.Config{CommitInterval: streamstest.Never, Partitions: map[string]int32{"in": 2}})
			in := streamstest.NewInput(d, "in", serde.String(), serde.String())
			for now := int64(0); now < 600; now += rng.Int64N(5) {
				at := max(0, now-rng.Int64N(150)*rng.Int64N(2))
				in.Pipe(fmt.Sprint("k", rng.IntN(6)), fmt.Sprint(rng.IntN(20), " ", at), now)
				switch rng.IntN(40) {
				case 0, 1, 2, 3:
					d.Commit()
				case 4:
					d.Restart() // compares
				}
			}
			d.Commit()
			d.Restart()
		})
	}
}
