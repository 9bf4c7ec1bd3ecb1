package group

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

func task(sub int32, p store.Partition) store.TaskID {
	return store.TaskID{Subtopology: sub, Partition: p}
}

func fullMember() Member {
	return Member{
		ProcessID: "p-1", Incarnation: "i-9", Endpoint: "host.example:7070", Rack: "r1", TransactionalID: "app-p-1-i-9-0",
		Thread: 3, Capacity: 2, Epoch: 1_700_000_000_123, Last: 1_700_000_000_100, ShapeHash: 0xdeadbeef00000001,
		Fencing:  []string{"app-p-0-i-1-0"},
		Incoming: []store.TaskID{task(0, 1), task(0, 2), task(4, 0)},
		Held: []Held{
			{Task: task(0, 0), State: HeldUnknown},
			{Task: task(0, 1), State: HeldOffset, Offset: 0},
			{Task: task(0, 7), State: HeldOffset, Offset: math.MaxInt64},
			{Task: task(2, 0), State: HeldActive},
			{Task: task(math.MaxInt32, math.MaxInt32), State: HeldOffset, Offset: 1},
		},
		Standby: []store.TaskID{task(0, 4), task(0, 5)}, Warmup: []store.TaskID{task(0, 7)},
		Retained: []store.TaskID{task(3, 0)}, HeldPartial: true, Draining: true,
		Tags: map[string]string{"zone": "z1", "cluster": "c2"},
		Host: HostID{BootID: "6ffa5b1e-7a39-4c3b-9c2f-0e8c5d1b2a3f", PIDNamespace: "4026531836", PID: 4711, StartTime: 99_887_766},
	}
}

func fullAssignment() Assignment {
	return Assignment{
		Epoch: 77, Tasks: 12, HeldBudget: 4096,
		Active: []store.TaskID{task(0, 0), task(0, 1), task(0, 5), task(3, 2)}, Standby: []store.TaskID{task(1, 1)},
		Releasing: []Release{{Task: task(0, 9), To: "p-2", Keep: true}, {Task: task(1, 0), To: "p-1"}},
		Incoming:  []store.TaskID{task(2, 2)}, Fence: []string{"a", "b"},
		Problems: []Problem{{Kind: DuplicateEndpoint, Detail: "host:1 is also that of process q"}, {Kind: OtherTopology}},
		Copies:   true, FollowUp: true, Again: true, Drains: true, Warmup: []store.TaskID{task(4, 4)}, Retained: []store.TaskID{task(5, 1)}, Awaited: []store.TaskID{task(1, 1), task(4, 4)}, ReadyLag: 5000,
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range []Member{{}, fullMember()} {
		got, err := DecodeMember(want.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		want.Version = version
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	for _, want := range []Assignment{{}, fullAssignment()} {
		got, err := DecodeAssignment(want.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// RB-10: unknown, zero, active and the greatest offset are four different things.
func TestStatesStayDistinct(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	states := []Held{
		{State: HeldUnknown},
		{State: HeldActive},
		{State: HeldOffset, Offset: 0},
		{State: HeldOffset, Offset: 1},
		{State: HeldOffset, Offset: 2},
		{State: HeldOffset, Offset: math.MaxInt64},
	}
	for range 500 {
		var m Member
		for p := range store.Partition(20) {
			if rng.IntN(3) > 0 {
				h := states[rng.IntN(len(states))]
				h.Task = task(int32(p/8), p)
				m.Held = append(m.Held, h)
			}
		}
		got, err := DecodeMember(m.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(m.Held, got.Held, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestEncodingTidies(t *testing.T) {
	t.Parallel()
	a := Assignment{Active: []store.TaskID{task(1, 5), task(0, 3), task(1, 5), task(-1, 0), task(0, -9)}}
	got, err := DecodeAssignment(a.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	if want := []store.TaskID{task(0, 3), task(1, 5)}; !slices.Equal(got.Active, want) {
		t.Errorf("active %v, want %v", got.Active, want)
	}
	m := Member{Held: []Held{{Task: task(0, 1), State: HeldOffset, Offset: 4}, {Task: task(0, 1), State: HeldOffset, Offset: -4}}, Epoch: -1}
	back, err := DecodeMember(m.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	if len(back.Held) != 1 || back.Held[0].Offset != 4 || back.Epoch != 0 {
		t.Errorf("%+v", back)
	}
	long := Member{Rack: strings.Repeat("x", maxText+1)}
	if back, err = DecodeMember(long.AppendTo(nil)); err != nil || len(back.Rack) != maxText {
		t.Errorf("rack of %d bytes, %v", len(back.Rack), err)
	}
}

// RB-10: what a newer version appends is passed over; what it forbids to read is refused by name.
func TestVersions(t *testing.T) {
	t.Parallel()
	m, a := fullMember(), fullAssignment()
	mb, ab := m.AppendTo(nil), a.AppendTo(nil)
	newer := func(b []byte, readable byte) []byte {
		b = append(bytes.Clone(b), "fields of the future"...)
		b[0], b[1] = version+1, readable
		return b
	}
	if got, err := DecodeMember(newer(mb, oldest)); err != nil || !gocmp.Equal(got, m, cmpopts.IgnoreFields(Member{}, "Version")) || got.Version != version+1 {
		t.Errorf("member of a newer version: %v", err)
	}
	if got, err := DecodeAssignment(newer(ab, oldest)); err != nil || !gocmp.Equal(got, a) {
		t.Errorf("assignment of a newer version: %v", err)
	}
	if _, err := DecodeMember(newer(mb, version+1)); !errors.Is(err, ErrNewer) {
		t.Errorf("unreadable member: %v", err)
	}
	if _, err := DecodeAssignment(newer(ab, version+1)); !errors.Is(err, ErrNewer) {
		t.Errorf("unreadable assignment: %v", err)
	}
	for name, b := range map[string][]byte{
		"trailing":     append(bytes.Clone(mb), 0),
		"version 0":    {0, 0},
		"oldest above": {1, 2},
		"nothing":      nil,
	} {
		if _, err := DecodeMember(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTruncated(t *testing.T) {
	t.Parallel()
	m, a := fullMember(), fullAssignment()
	mb, ab := m.AppendTo(nil), a.AppendTo(nil)
	for n := range mb {
		if _, err := DecodeMember(mb[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("member of %d of %d bytes: %v", n, len(mb), err)
		}
	}
	for n := range ab {
		if _, err := DecodeAssignment(ab[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("assignment of %d of %d bytes: %v", n, len(ab), err)
		}
	}
}

// A few bytes must not make a decoder ask for much memory.
func TestHostileCounts(t *testing.T) {
	t.Parallel()
	var w writer
	w.b = append(w.b, version, oldest)
	w.number(5)                 // epoch
	w.number(1)                 // tasks
	w.number(0)                 // budget
	w.number(1)                 // one sub-topology of actives,
	w.number(0)                 // number 0,
	w.number(1)                 // one run
	w.number(0)                 // from partition 0
	w.number(math.MaxInt32 - 1) // over all there are
	if _, err := DecodeAssignment(w.b); !errors.Is(err, ErrMalformed) {
		t.Errorf("a run of 2^31 partitions: %v", err)
	}
	m := Member{Epoch: math.MaxInt64}
	if _, err := DecodeMember(m.AppendTo(nil)); !errors.Is(err, ErrMalformed) {
		t.Errorf("an epoch nothing can follow: %v", err)
	}
}

func FuzzDecodeMember(f *testing.F) {
	m := fullMember()
	f.Add(m.AppendTo(nil))
	f.Add(previous(f, "member-1.bin"))
	f.Add([]byte{version, oldest})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMember(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		again, err := DecodeMember(m.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(m, again, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Member{}, "Version")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzDecodeAssignment(f *testing.F) {
	a := fullAssignment()
	f.Add(a.AppendTo(nil))
	f.Add(previous(f, "assignment-1.bin"))
	f.Add([]byte{version, oldest})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeAssignment(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		again, err := DecodeAssignment(a.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []*Assignment{&a, &again} { // one task released twice comes back in another order, or once
			slices.SortFunc(x.Releasing, func(a, b Release) int { return cmp.Or(a.Task.Compare(b.Task), cmp.Compare(a.To, b.To)) })
			x.Releasing = slices.Compact(x.Releasing)
		}
		if diff := gocmp.Diff(a, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestHeldBudget(t *testing.T) {
	t.Parallel()
	var held []Held
	for p := range store.Partition(1000) {
		held = append(held, Held{Task: task(0, p), State: HeldOffset, Offset: int64(p) * 1000})
	}
	held = append(held, Held{Task: task(1, 0), State: HeldActive}, Held{Task: task(1, 1)})
	got, left := trimHeld(held, 500, nil)
	if left == 0 || len(got)+left != len(held) {
		t.Fatalf("%d kept, %d left out of %d", len(got), left, len(held))
	}
	empty, m := Member{}, Member{Held: got}
	if n := len(m.AppendTo(nil)) - len(empty.AppendTo(nil)); n > 500 {
		t.Errorf("%d bytes, budget 500", n)
	}
	if got[0].Offset != 999_000 || got[1].Offset != 998_000 {
		t.Errorf("the furthest are not first: %v", got[:2])
	}
	if all, left := trimHeld(held, maxHeldBudget, nil); left != 0 || len(all) != len(held) {
		t.Errorf("%d left out of a budget that is enough", left)
	}
	few := []Held{{Task: task(0, 0), State: HeldUnknown}, {Task: task(0, 1), State: HeldActive}, {Task: task(0, 2), State: HeldOffset, Offset: 1}}
	if got, left := trimHeld(few, 8, nil); left != 1 || got[0].State != HeldOffset || got[1].State != HeldActive {
		t.Errorf("%v: of what is active the leader knows more than of what is not, of what is unknown nothing", got)
	}
	if got, left := trimHeld(held, 8, tasks(3)); left == 0 || got[0].Task != task(0, 3) {
		t.Errorf("%v: the leader waits for 0_3", got)
	}
	if none, left := trimHeld(held, 0, nil); len(none) != 0 || left != len(held) {
		t.Errorf("%d kept without a budget", len(none))
	}
}

// The arithmetic of size.go: what a group of a given size needs.
func TestCompact(t *testing.T) {
	t.Parallel()
	var a Assignment
	for p := range store.Partition(1000) {
		a.Active = append(a.Active, task(0, p))
	}
	a.Epoch = router.Epoch(1_700_000_000_000)
	if n := len(a.AppendTo(nil)); n > 32 {
		t.Errorf("1000 neighbours take %d bytes", n)
	}
	a.Active = nil
	for p := range store.Partition(20) {
		a.Active = append(a.Active, task(0, p*500))
	}
	if n := len(a.AppendTo(nil)); n > 90 {
		t.Errorf("20 tasks far apart take %d bytes", n)
	}
}

// previous reads what the previous version wrote for fullMember or fullAssignment.
func previous(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// RB-10: members of the previous version join during a rolling upgrade.
func TestPreviousVersion(t *testing.T) {
	t.Parallel()
	mb, ab := previous(t, "member-1.bin"), previous(t, "assignment-1.bin")
	m, err := DecodeMember(mb)
	if err != nil {
		t.Fatal(err)
	}
	want := fullMember()
	want.Standby, want.Warmup, want.Retained, want.HeldPartial, want.Tags, want.Host, want.Version = nil, nil, nil, false, nil, HostID{}, 1
	want.Draining = false
	if diff := gocmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	if m.follows() {
		t.Error("the previous version would be given copies")
	}
	a, err := DecodeAssignment(ab)
	if err != nil {
		t.Fatal(err)
	}
	wantA := fullAssignment()
	wantA.Again, wantA.Drains = false, false
	wantA.Copies, wantA.FollowUp, wantA.Warmup, wantA.Retained, wantA.Awaited, wantA.ReadyLag = false, false, nil, nil, nil, 0
	wantA.Releasing[0].Keep = false
	if diff := gocmp.Diff(wantA, a); diff != "" {
		t.Error(diff)
	}
	// What it knows comes first, byte for byte, and it may read it: so it finds what it is after and passes over the rest.
	full, fullA := fullMember(), fullAssignment()
	for name, b := range map[string][2][]byte{"member": {mb, full.AppendTo(nil)}, "assignment": {ab, fullA.AppendTo(nil)}} {
		old, now := b[0], b[1]
		if now[1] > old[0] || !bytes.HasPrefix(now[2:], old[2:]) {
			t.Errorf("%s: the previous version cannot read it", name)
		}
	}
}

// A boot id is compact as a UUID, and comes back as it was whatever it is.
// Version 2 before it could say that it drains: its members join, and read what they are told as far as they know it.
func TestVersionBeforeDrains(t *testing.T) {
	t.Parallel()
	m, err := DecodeMember(previous(t, "member-2.bin"))
	want := fullMember()
	want.Draining, want.Version = false, 2
	if diff := gocmp.Diff(want, m); diff != "" || err != nil {
		t.Error(err, diff)
	}
	a, err := DecodeAssignment(previous(t, "assignment-2.bin"))
	wantA := fullAssignment()
	wantA.Again, wantA.Drains = false, false
	if diff := gocmp.Diff(wantA, a); diff != "" || err != nil {
		t.Error(err, diff)
	}
	// What was added is two bits each, which an older reader of the byte passes over.
	now := fullMember()
	if len(now.AppendTo(nil)) != len(previous(t, "member-2.bin")) {
		t.Error("the metadata of a member has grown")
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	for _, h := range []HostID{
		{},
		{BootID: "6ffa5b1e-7a39-4c3b-9c2f-0e8c5d1b2a3f"},
		{BootID: "6FFA5B1E-7a39-4c3b-9c2f-0e8c5d1b2a3f", PID: 1},
		{BootID: "6ffa5b1e7-a39-4c3b-9c2f-0e8c5d1b2a3f", StartTime: 1},
		{BootID: "6ffa5b1e-7a39-4c3b-9c2f-0e8c5d1b2a3g"},
		{BootID: "plain", PIDNamespace: "1", PID: math.MaxInt32, StartTime: math.MaxUint64},
		{PID: 7},
	} {
		m := Member{Host: h}
		got, err := DecodeMember(m.AppendTo(nil))
		if err != nil || got.Host != h {
			t.Errorf("%+v came back as %+v, %v", h, got.Host, err)
		}
	}
	m, none := Member{Host: HostID{BootID: "6ffa5b1e-7a39-4c3b-9c2f-0e8c5d1b2a3f", PIDNamespace: "4026531836", PID: 4711, StartTime: 99_887_766}}, Member{}
	if n := len(m.AppendTo(nil)) - len(none.AppendTo(nil)); n > 36 {
		t.Errorf("a host takes %d bytes", n)
	}
}
