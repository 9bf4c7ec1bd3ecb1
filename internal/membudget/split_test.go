package membudget

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

func request(limit int64) Request {
	return Request{Limit: limit, Threads: 2, Databases: 1, RecordBytes: 1_000_000}
}

func TestDivide(t *testing.T) {
	tests := []struct {
		name  string
		given func(*Request)
		limit int64
		want  map[Part]int64
		spare bool
	}{
		{
			name: "plenty: each part has what it has a use for", limit: 4 << 30, spare: true,
			want: map[Part]int64{
				Memtables: MemtablesFor(8*mib, 1), Recent: 256 * mib, Uncommitted: 64 * mib, RecordCache: 10 * mib, Fetch: 32 * mib,
				Produce: 64 * mib, RemoteCache: 32 * mib, Queries: 64 * mib, BlockCache: 0, IndexCache: 0,
			},
		},
		{
			name: "a part that is set is what it is", limit: 512 * mib,
			given: func(r *Request) { r.Set = map[Part]int64{Recent: 20 * mib, RemoteCache: 0} },
			want:  map[Part]int64{Recent: 20 * mib, RemoteCache: 0},
		},
		{
			name: "compression needs a block cache", limit: 4 << 30, spare: true,
			given: func(r *Request) { r.Compressed, r.Databases = true, 2 },
			want:  map[Part]int64{BlockCache: 128 * mib, Memtables: MemtablesFor(8*mib, 2)},
		},
		{
			name: "sinks have a client each", limit: 4 << 30, spare: true,
			given: func(r *Request) { r.Sinks = 3 },
			want:  map[Part]int64{Sinks: 96 * mib, Fetch: 32 * mib},
		},
		{
			name: "large records need large memtables", limit: 512 * mib,
			given: func(r *Request) { r.RecordBytes = 100 * mib }, // no engine takes more than 1 MiB
			want:  map[Part]int64{},
		},
		{
			name: "small records leave memory to others", limit: 128 * mib,
			given: func(r *Request) { r.RecordBytes, r.Threads = 100_000, 1 },
			want:  map[Part]int64{},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := request(tt.limit)
			if tt.given != nil {
				tt.given(&r)
			}
			s, err := Divide(r)
			if err != nil {
				t.Fatal(err)
			}
			for p, want := range tt.want {
				if have := s.Of(p); have != want {
					t.Errorf("%s: %d, want %d", p, have, want)
				}
			}
			if tt.spare != (s.Spare > mib) {
				t.Errorf("spare %d", s.Spare)
			}
			check(t, r, s)
		})
	}
}

// check holds for every split.
func check(t *testing.T, r Request, s Split) {
	t.Helper()
	sum := s.Spare
	for _, sh := range s.Shares {
		sum += sh.Bytes
	}
	if sum != r.Limit || s.Spare < 0 {
		t.Errorf("shares and %d spare are %d, the limit is %d", s.Spare, sum, r.Limit)
	}
	for _, n := range needs(r) {
		have := s.Of(n.part)
		if given, ok := r.Set[n.part]; ok {
			if have != given {
				t.Errorf("%s: %d, set to %d", n.part, have, given)
			}
		} else if have < n.least || have > n.most {
			t.Errorf("%s: %d, want %d to %d", n.part, have, n.least, n.most)
		}
	}
	if live := sum - s.Spare - s.Of(Runtime); s.Of(Runtime) < program+live/collected {
		t.Errorf("%d for what is collected of %d", s.Of(Runtime), live)
	}
	if _, set := r.Set[Memtables]; !set && s.MemtableBytes() < MemtableFor(r.RecordBytes) {
		t.Errorf("memtables of %d do not take records of %d", s.MemtableBytes(), r.RecordBytes)
	}
	if g := s.GoLimit(); g >= r.Limit || g < program {
		t.Errorf("Go limit %d of %d", g, r.Limit)
	}
}

// TestDivideHolds: whatever is asked for, the split fits and honours what was set, or the error's own number is enough.
func TestDivideHolds(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 5000 {
		r := Request{
			Limit: rng.Int64N(2 << 30), Threads: rng.IntN(9), Databases: rng.IntN(4), RecordBytes: rng.Int64N(2 << 20),
			Compressed: rng.IntN(2) == 0, Set: make(map[Part]int64),
		}
		for _, n := range needs(r) {
			if rng.IntN(4) == 0 {
				r.Set[n.part] = rng.Int64N(100 * mib)
			}
		}
		s, err := Divide(r)
		if small, ok := errors.AsType[*TooSmallError](err); ok {
			if small.Need <= r.Limit {
				t.Fatalf("seed %d: needs %d, has %d", seed, small.Need, r.Limit)
			}
			if r.Limit = small.Need - 1; r.Limit > 0 {
				if _, err := Divide(r); err == nil {
					t.Fatalf("seed %d: one byte less than is needed is enough", seed)
				}
			}
			r.Limit = small.Need
			s, err = Divide(r)
		}
		if err != nil {
			t.Fatalf("seed %d: %+v: %v", seed, r, err)
		}
		if check(t, r, s); t.Failed() {
			t.Fatalf("seed %d: %+v: %+v", seed, r, s)
		}
	}
}

// TestMoreIsNeverLess: a larger limit takes nothing away from any part.
func TestMoreIsNeverLess(t *testing.T) {
	var last Split
	for limit := int64(240 * mib); limit < 2<<30; limit += 10 * mib {
		s, err := Divide(request(limit))
		if err != nil {
			t.Fatal(err)
		}
		for _, sh := range last.Shares {
			if have := s.Of(sh.Part); have < sh.Bytes {
				t.Errorf("limit %s: %s has %d, had %d with less", Text(limit), sh.Part, have, sh.Bytes)
			}
		}
		last = s
	}
}

func TestTooSmall(t *testing.T) {
	r := request(64 * mib)
	r.Set = map[Part]int64{Recent: 30 * mib}
	_, err := Divide(r)
	small, ok := errors.AsType[*TooSmallError](err)
	if !ok {
		t.Fatalf("64 MiB: %v", err)
	}
	for _, want := range []string{"64MiB", Text(small.Need), "memtables", "recent 30MiB as set"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "index_cache") {
		t.Errorf("%q names a part that needs nothing", err)
	}
}

func TestMemtableFor(t *testing.T) {
	for _, record := range []int64{1, 100_000, 1_000_000, mib, 1 << 30} {
		m := MemtableFor(record)
		if take := m*recordShare/recordOf - recordSlack; take < min(record, mostRecord) {
			t.Errorf("a memtable of %d for records of %d takes %d", m, record, take)
		}
	}
}

// What is mapped comes out of the Go runtime's limit, down to three quarters of what was planned.
func TestGoLimitBeside(t *testing.T) {
	const limit, planned = 512 * mib, 440 * mib
	for _, tt := range []struct{ mapped, want int64 }{
		{0, planned},
		{56 * mib, planned},
		{57 * mib, 439 * mib},
		{100 * mib, 396 * mib},
		{166 * mib, 330 * mib},
		{1 << 40, 330 * mib},
	} {
		if have := GoLimitBeside(limit, planned, tt.mapped); have != tt.want {
			t.Errorf("%d MiB mapped: %d MiB, want %d MiB", tt.mapped/mib, have/mib, tt.want/mib)
		}
	}
}
