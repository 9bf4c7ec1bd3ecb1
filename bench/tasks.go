package main

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

const (
	// perCommit is how many updates a commit has, of all tasks together.
	perCommit = 1000
	// recordCacheBytes has room for 400,000 counts.
	recordCacheBytes = 32 << 20
)

// tasks are open tasks with one store each, all of the same kind.
type tasks struct {
	cfg    layered.Config
	spec   store.Spec
	stores *layered.Stores
	open   []*layered.Task
	kv     []store.KeyValue
	win    []store.Window
	seq    store.Sequence
}

var (
	countSpec  = store.Spec{Name: "bench", Kind: store.KindTimestampedKeyValue, Caching: true}
	windowSpec = store.Spec{
		Name: "bench", Kind: store.KindTimestampedWindow, WindowSize: time.Hour, Retention: 24 * time.Hour,
	}
)

// openTasks opens n tasks, their records in one record cache where the spec wants it.
func openTasks(ctx context.Context, cfg layered.Config, spec store.Spec, n int) (*tasks, error) {
	t := &tasks{cfg: cfg, spec: spec}
	if err := t.start(ctx, n); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *tasks) start(ctx context.Context, n int) (err error) {
	if t.stores, err = layered.Open(ctx, t.cfg); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close(ctx))
		}
	}()
	cache := t.stores.NewRecordCache(recordCacheBytes)
	for i := range n {
		task, err := t.stores.OpenTask(ctx, store.TaskID{Partition: store.Partition(i)}, []store.Spec{t.spec})
		if err != nil {
			return err
		}
		t.open = append(t.open, task)
		t.seq = max(t.seq, task.Checkpoint().Sequence)
		if t.spec.Kind == store.KindTimestampedWindow {
			w, err := task.Window(t.spec.Name)
			if err != nil {
				return err
			}
			t.win = append(t.win, w)
			continue
		}
		if t.spec.Caching {
			task.UseCache(cache)
		}
		kv, err := task.KeyValue(t.spec.Name)
		if err != nil {
			return err
		}
		t.kv = append(t.kv, kv)
	}
	return nil
}

// close moves everything to the engine.
func (t *tasks) close(ctx context.Context) error {
	var errs []error
	for _, task := range t.open {
		errs = append(errs, task.Close(ctx))
	}
	t.open, t.kv, t.win = nil, nil, nil
	return errors.Join(append(errs, t.stores.Close())...)
}

// reopen leaves everything in the engine's tables.
func (t *tasks) reopen(ctx context.Context) error {
	n := len(t.open)
	if err := t.close(ctx); err != nil {
		return err
	}
	return t.start(ctx, n)
}

// commit does for each task that was written what a stream thread does but for what goes over the network.
func (t *tasks) commit() error {
	t.seq++
	for _, task := range t.open {
		if t.spec.Caching {
			if _, err := task.FlushCache(t.spec.Name); err != nil {
				return err
			}
		}
		if !task.Dirty() {
			continue
		}
		for range task.Changes() { // for the changelog
			continue
		}
		task.Commit(store.Checkpoint{
			Sequence: t.seq, StreamTime: int64(t.seq),
			Changelogs: map[store.Name]store.LogPosition{t.spec.Name: {Next: store.Offset(t.seq)}},
		})
	}
	return nil
}

// of is the task of the i-th key.
func (t *tasks) of(i int) int { return i % len(t.open) }

// fill puts keys with values of size bytes into the engine's tables.
func (t *tasks) fill(ctx context.Context, keys, size int) error {
	data := make([]byte, size)
	for i := range keys {
		if err := t.kv[t.of(i)].Put(key(i), store.Value{Data: data, Timestamp: 1}); err != nil {
			return err
		}
		if i%10_000 == 9_999 {
			if err := t.commit(); err != nil {
				return err
			}
		}
	}
	if err := t.commit(); err != nil {
		return err
	}
	return t.reopen(ctx)
}

// count reads a random key, adds one to the number that its value begins with, and writes it; perCommit times, and commits.
func (t *tasks) count(keys int, data []byte) error {
	for range perCommit {
		i := rand.IntN(keys)
		k, kv := key(i), t.kv[t.of(i)]
		var n uint64
		switch v, err := kv.Get(k); {
		case err == nil:
			n = binary.BigEndian.Uint64(v.Data)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		binary.BigEndian.PutUint64(data, n+1)
		if err := kv.Put(k, store.Value{Data: data, Timestamp: 1}); err != nil {
			return err
		}
	}
	return t.commit()
}

// put is count without the read.
func (t *tasks) put(keys int, data []byte) error {
	for range perCommit {
		i := rand.IntN(keys)
		if err := t.kv[t.of(i)].Put(key(i), store.Value{Data: data, Timestamp: 1}); err != nil {
			return err
		}
	}
	return t.commit()
}

// spend calls commit until it has used this much CPU, then end, that always; it returns CPU ns per update, all included.
func spend(ctx context.Context, cpu time.Duration, commit, end func() error) (float64, error) {
	n, begin := 0, used()
	err := ctx.Err()
	for err == nil && used().cpu-begin.cpu < cpu {
		err = errors.Join(commit(), ctx.Err())
		n += perCommit
	}
	if err := errors.Join(err, end()); err != nil {
		return 0, err
	}
	_, all := used().since(begin)
	return float64(all.Nanoseconds()) / float64(n), nil
}
