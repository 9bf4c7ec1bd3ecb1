package processor

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// versioner keeps every record as a version of its key; one without a value ends the version before it.
type versioner struct{ versions store.Versioned }

func (p *versioner) Init(ctx *Context) (err error) {
	p.versions, err = ctx.VersionedStore(testStore)
	return err
}

func (p *versioner) Process(r *Record) error {
	_, err := p.versions.Put(r.Key, store.Value{Data: r.Value, Timestamp: r.Timestamp})
	return err
}

func (p *versioner) Close() error { return nil }

func versionedTopology() *Topology {
	return NewTopology().
		AddSource("source", SourceOptions{}, testInput).
		AddProcessor("versions", func() Processor { return &versioner{} }, "source").
		AddStateStore(store.Spec{Name: testStore, Kind: store.KindVersioned, Retention: time.Hour}, "versions")
}

// versionTruth is what was produced: by key and time the value, nil for a tombstone.
type versionTruth map[string]map[int64]*string

func (tr versionTruth) put(key string, at int64, value *string) {
	if tr[key] == nil {
		tr[key] = make(map[int64]*string)
	}
	tr[key][at] = value
}

// versions are those of a key, oldest first.
func (tr versionTruth) versions(key string) []store.Version {
	out := []store.Version{}
	times := slices.Sorted(maps.Keys(tr[key]))
	for i, at := range times {
		end := int64(store.NoEnd)
		if i+1 < len(times) {
			end = times[i+1]
		}
		if value := tr[key][at]; value != nil {
			out = append(out, store.Version{Value: store.Value{Data: []byte(*value), Timestamp: at}, ValidTo: end})
		}
	}
	return out
}

// TestSimVersioned: what a versioned store answers as of any time is the same after kills, from what the disk of the killed held
// and from the changelog alone, with versions that came out of order (QS-10).
func TestSimVersioned(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 3)
		f.topo = versionedTopology
		f.options = func(c *Config) { c.CommitInterval = 200 * time.Millisecond }
		began := time.Now().UnixMilli()
		tr := versionTruth{}
		produce := func(n int) {
			records := make([]*kgo.Record, n)
			for i := range records {
				key, at := fmt.Sprint("key-", rng.IntN(40)), began+rng.Int64N(2000)
				records[i] = &kgo.Record{Topic: testInput, Key: []byte(key), Timestamp: time.UnixMilli(at)}
				if rng.IntN(4) == 0 {
					tr.put(key, at, nil)
					continue
				}
				value := fmt.Sprint(rng.Uint32())
				records[i].Value = []byte(value)
				tr.put(key, at, &value)
			}
			if err := f.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		in := f.start("disk-0")
		in.waitRunning()
		for _, disk := range []string{"disk-1", "disk-2"} {
			for range 10 {
				produce(1 + rng.IntN(60))
				time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
			}
			in.kill(disk)
			in = f.start(disk)
			f.reap(in)
			in.waitRunning()
			f.waitCaughtUp(3 * time.Minute)
			f.checkVersions(tr, rng, in)
		}
		if err := in.stop(); err != nil {
			t.Fatal(err)
		}
		in = f.start("empty")
		in.waitRunning()
		f.checkVersions(tr, rng, in)
	})
}

// checkVersions compares all versions, and what was valid at some times, with the truth.
func (f *fleet) checkVersions(tr versionTruth, rng *rand.Rand, in *instance) {
	f.t.Helper()
	readers := make([]store.VersionedReader, 3)
	count := int64(0)
	for p := range readers {
		r, err := in.rt.Read(f.t.Context(), testStore, store.Partition(p), store.ReadOptions{})
		if err != nil {
			f.t.Fatal(err)
		}
		defer r.Close()
		if readers[p], err = r.Versions(); err != nil {
			f.t.Fatal(err)
		}
		n, err := readers[p].ApproximateCount(f.t.Context())
		if err != nil {
			f.t.Fatal(err)
		}
		count += n
	}
	for key := range tr {
		r, want := readers[router.PartitionFor([]byte(key), int32(len(readers)))], tr.versions(key)
		it, err := r.Scan(f.t.Context(), store.VersionScan{Key: []byte(key), To: math.MaxInt64})
		if err != nil {
			f.t.Fatal(err)
		}
		have := []store.Version{}
		for it.Next() {
			have = append(have, store.Version{Value: it.Entry().Value, ValidTo: it.Entry().End})
		}
		it.Close()
		if d := cmp.Diff(want, have); d != "" || it.Err() != nil {
			f.t.Fatalf("versions of %s: %v (-want +got)\n%s", key, it.Err(), d)
		}
		if n := len(want); n > 0 && want[n-1].ValidTo == store.NoEnd {
			count--
		}
		for at := range tr[key] {
			at += rng.Int64N(50) - 20
			v, err := r.GetAsOf(f.t.Context(), []byte(key), at)
			i := slices.IndexFunc(want, func(w store.Version) bool {
				return w.Timestamp <= at && (w.ValidTo == store.NoEnd || w.ValidTo > at)
			})
			switch {
			case i < 0 && errors.Is(err, store.ErrNotFound):
			case i < 0 || err != nil || !cmp.Equal(v, want[i]):
				f.t.Fatalf("%s as of %d: %v, %v, want version %d of %v", key, at, v, err, i, want)
			}
		}
	}
	if count != 0 {
		f.t.Errorf("%d keys too many have a value", count)
	}
}
