package badgerdb_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/store/badgerdb"
	"github.com/statemesh/statemesh/store/engine"
	"github.com/statemesh/statemesh/store/storetest"
)

func TestTuningValidate(t *testing.T) {
	tests := []struct {
		name   string
		tuning badgerdb.Tuning
		want   []string // parts of the error; none: it is valid
	}{
		{"defaults", badgerdb.Tuning{}, nil},
		{"all of it", badgerdb.Tuning{Compression: "zstd", BlockCacheBytes: 1 << 20, BlockBytes: 16 << 10, BloomFalsePositive: 0.1, Levels: 5}, nil},
		{"a cache for nothing", badgerdb.Tuning{BlockCacheBytes: 1 << 20}, []string{"BlockCacheBytes", "mapped files"}},
		{"a cache too small", badgerdb.Tuning{Compression: "snappy", BlockCacheBytes: 1000}, []string{"BlockCacheBytes", "1000"}},
		{
			"everything",
			badgerdb.Tuning{Compression: "lzo", BlockBytes: 1, BloomFalsePositive: 1, Levels: 99},
			[]string{"Compression", "lzo", "BlockBytes", "BloomFalsePositive", "Levels", "99"},
		},
		{"negative", badgerdb.Tuning{BlockBytes: -1, BloomFalsePositive: -1, Levels: -1}, []string{"BlockBytes", "BloomFalsePositive", "Levels"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.tuning.Validate()
			if (err == nil) != (tt.want == nil) {
				t.Fatalf("error %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// TestTunedEngine: the contract holds whatever the layout.
func TestTunedEngine(t *testing.T) {
	t.Parallel()
	for name, tuning := range map[string]badgerdb.Tuning{
		"zstd":   {Compression: "zstd", BlockCacheBytes: 1 << 20, BlockBytes: 1 << 10},
		"snappy": {Compression: "snappy", Levels: 4, BloomFalsePositive: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Engine(t, func(t *testing.T) engine.Engine {
				return openDB(t, badgerdb.Options{Dir: t.TempDir(), Tuning: tuning, MemTableBytes: 1 << 20})
			})
		})
	}
}

// TestTuningChanges: a database may be opened with another layout; only fewer levels are refused, for its tables lie on them,
// and the refusal leaves it as it is.
func TestTuningChanges(t *testing.T) {
	t.Parallel()
	const rows = 5000
	opt := badgerdb.Options{Dir: t.TempDir(), MemTableBytes: 1 << 20}
	var sp engine.SpaceID
	var id engine.StoreID
	for i, tuning := range []badgerdb.Tuning{
		{}, {Compression: "zstd", BlockCacheBytes: 1 << 20}, {Compression: "snappy", BlockBytes: 8 << 10}, {Levels: 9},
	} {
		opt.Tuning = tuning
		db, err := badgerdb.Open(t.Context(), opt)
		if err != nil {
			t.Fatalf("%+v: %v", tuning, err)
		}
		sp, id = space(t, db)
		move(t, db, engine.Move{Space: sp, Writes: bulk(id, 0, i*rows, (i+1)*rows), Record: []byte("1")})
		if err := badgerdb.Flatten(db); err != nil {
			t.Fatal(err)
		}
		if n := count(t, db, sp, id, 0); n != (i+1)*rows {
			t.Fatalf("%+v: %d rows, want %d", tuning, n, (i+1)*rows)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	opt.Tuning = badgerdb.Tuning{Levels: 3}
	if db, err := badgerdb.Open(t.Context(), opt); err == nil || !strings.Contains(err.Error(), "Levels: 3") {
		t.Errorf("three levels: %v, %v; want an error that says so", db, err)
	}
	opt.Tuning = badgerdb.Tuning{}
	db, err := badgerdb.Open(t.Context(), opt)
	if err == nil || !strings.Contains(err.Error(), "lie on 9") {
		t.Fatalf("seven levels for tables on nine: %v, %v", db, err)
	}
	opt.Tuning.Levels = 9
	if n := count(t, openDB(t, opt), sp, id, 0); n != 4*rows {
		t.Errorf("%d rows after the refusal, want %d", n, 4*rows)
	}
}

// TestRecordLimitFollowsMemtable: what the limits admit the engine takes, with memtables of every size and each codec, and
// gives back after a restart.
func TestRecordLimitFollowsMemtable(t *testing.T) {
	t.Parallel()
	for _, memtable := range []int64{256 << 10, 1 << 20, 7 << 20, 8 << 20, 32 << 20} {
		for _, codec := range []string{"none", "snappy"} {
			t.Run(fmt.Sprintf("%d %s", memtable, codec), func(t *testing.T) {
				t.Parallel()
				opt := badgerdb.Options{Dir: t.TempDir(), MemTableBytes: memtable, Tuning: badgerdb.Tuning{Compression: codec}}
				limit := opt.Limits().RecordBytes
				if limit < memtable/10 && limit < 1_000_000 {
					t.Fatalf("records of %d with memtables of %d, want about a tenth", limit, memtable)
				}
				db, err := badgerdb.Open(t.Context(), opt)
				if err != nil {
					t.Fatal(err)
				}
				sp, id := space(t, db)
				key, value := []byte("large"), bytes.Repeat([]byte("abcdefgh"), int(limit)/8+1)
				value = value[:limit-int64(len(key))]
				for i := range 3 { // also beside another one in the same memtable
					key := fmt.Appendf(nil, "larg%d", i)
					move(t, db, engine.Move{Space: sp, Record: []byte("1"), Writes: func(yield func(engine.Write) bool) {
						yield(engine.Write{Store: id, Key: key, Value: value})
					}})
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				db = openDB(t, opt)
				snap, err := db.Snapshot(sp)
				if err != nil {
					t.Fatal(err)
				}
				defer snap.Release()
				for i := range 3 {
					have, err := snap.Get(id, 0, fmt.Appendf(nil, "larg%d", i), nil)
					if err != nil || !bytes.Equal(have, value) {
						t.Fatalf("record %d: %d bytes, %v; want %d", i, len(have), err, len(value))
					}
				}
			})
		}
	}
}
