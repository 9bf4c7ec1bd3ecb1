package router

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/store"
)

func TestSnapshotLookups(t *testing.T) {
	s := mustSnapshot(t, fleet(7, 4, "b", "a"))
	if s.Application() != "app" || s.Epoch() != 7 || len(s.Missing()) != 0 {
		t.Fatal(s.Application(), s.Epoch(), s.Missing())
	}
	if names := []store.Name{s.Stores()[0].Name, s.Stores()[1].Name}; !slices.Equal(names, []store.Name{"counts", "totals"}) {
		t.Fatal("not sorted:", names)
	}
	if in := s.Instances(); in[0].ID != "a" || in[1].ID != "b" {
		t.Fatal("not sorted")
	}
	if in, ok := s.Instance("a"); !ok || in.Endpoint != "a:9000" || len(in.Active) != 4 || len(in.Standby) != 4 {
		t.Fatalf("%+v", in)
	}
	if _, ok := s.Instance("nobody"); ok {
		t.Fatal("found nobody")
	}
	p, err := s.Partition("counts", []byte("hello"))
	if err != nil || p != 1 {
		t.Fatal(p, err)
	}
	if a, ok := s.Active("counts", 1); !ok || a != (Replica{Instance: "a", Incarnation: "a1", Endpoint: "a:9000", Role: store.RoleActive}) {
		t.Fatalf("%+v", a)
	}
	r := s.Replicas("totals", 2)
	if len(r) != 2 || r[0].Instance != "b" || r[0].Role != store.RoleActive || r[1].Instance != "a" || r[1].Role != store.RoleStandby {
		t.Fatalf("%+v", r)
	}
	for _, p := range []store.Partition{-1, 4} {
		if _, ok := s.Active("counts", p); ok || s.Replicas("counts", p) != nil {
			t.Fatal("partition", p)
		}
	}
	if st, err := s.Store("counts"); err != nil || st.KeyFormat != "string" || st.Partitions != 4 {
		t.Fatal(st, err)
	}
	for _, err := range []error{second(s.Store("nope")), second(s.Partition("nope", []byte("k")))} {
		e, ok := errors.AsType[*store.UnknownStoreError](err)
		if !ok || !slices.Equal(e.Known, []store.Name{"counts", "totals"}) {
			t.Fatal(err)
		}
	}
	for _, key := range [][]byte{nil, {}} { // a record without a key belongs to no partition, and no store holds ""
		if _, err := s.Partition("counts", key); !errors.Is(err, store.ErrInvalidKey) {
			t.Fatal(err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestSnapshotMissingAndMoving(t *testing.T) {
	d := fleet(1, 3, "a", "b")
	d.Instances[0].Active = slices.DeleteFunc(d.Instances[0].Active, func(id store.TaskID) bool { return id.Partition == 2 })
	d.Moving = map[store.TaskID]string{
		task0(2): "b", // nobody has it, b will
		task0(0): "b", // a has it, b will
	}
	s := mustSnapshot(t, d)
	if got := s.Missing(); !slices.Equal(got, []store.TaskID{{Subtopology: 1, Partition: 2}}) {
		t.Fatal(got)
	}
	if to, ok := s.MovingTo(task0(0)); !ok || to != "b" {
		t.Fatal(to)
	}
	if _, ok := s.MovingTo(task0(1)); ok {
		t.Fatal("does not move")
	}
}

// A sub-topology without stores has tasks like any other; nothing asks for them.
func TestSnapshotStatelessTasks(t *testing.T) {
	d := fleet(1, 1, "a")
	d.Instances[0].Active = append(d.Instances[0].Active, store.TaskID{Subtopology: 9, Partition: 50})
	if got := mustSnapshot(t, d).Instances()[0].Active; len(got) != 3 {
		t.Fatal(got)
	}
}

func TestNewSnapshotRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		mod  func(*Data)
		want string
	}{
		{"no application", func(d *Data) { d.Application = "" }, "application id: empty"},
		{"no epoch", func(d *Data) { d.Epoch = 0 }, "epoch 0: want > 0"},
		{"two actives", func(d *Data) { d.Instances[1].Active = append(d.Instances[1].Active, task0(0)) }, "task 0_0: active on a and on b"},
		{"task twice", func(d *Data) { d.Instances[0].Active = append(d.Instances[0].Active, task0(0)) }, "instance a: task 0_0: listed twice"},
		{"active and standby at once", func(d *Data) { d.Instances[0].Standby = append(d.Instances[0].Standby, task0(0)) }, "instance a: task 0_0: listed twice"},
		{"partition beyond the topic", func(d *Data) { d.Instances[0].Active = append(d.Instances[0].Active, task0(4)) }, "instance a: task 0_4: sub-topology 0 has 4 partitions"},
		{"negative task", func(d *Data) { d.Instances[0].Active = append(d.Instances[0].Active, task0(-1)) }, "instance a: task 0_-1"},
		{"no instance id", func(d *Data) { d.Instances[0].ID = "" }, "instance 0 (a:9000): no id"},
		{"instance twice", func(d *Data) { d.Instances[1].ID = "a" }, "instance a: listed twice"},
		{"no port", func(d *Data) { d.Instances[0].Endpoint = "host" }, `instance a: endpoint "host": want host:port`},
		{"no host", func(d *Data) { d.Instances[0].Endpoint = ":9000" }, `instance a: endpoint ":9000": want host:port`},
		{"port 0", func(d *Data) { d.Instances[0].Endpoint = "a:0" }, `instance a: endpoint "a:0": want host:port`},
		{"no store name", func(d *Data) { d.Stores[0].Name = "" }, "store 0: no name"},
		{"store twice", func(d *Data) { d.Stores[0].Name = "counts" }, "store counts: listed twice"},
		{"no partitions", func(d *Data) { d.Stores[0].Partitions = 0 }, "store totals: 0 partitions"},
		{"partition counts differ", func(d *Data) { d.Stores[0].Subtopology, d.Stores[0].Partitions = 0, 5 }, "store counts: 4 partitions, others of sub-topology 0 have 5"},
		{"negative sub-topology", func(d *Data) { d.Stores[0].Subtopology = -1 }, "store totals: sub-topology -1"},
		{"moving to nobody", func(d *Data) { d.Moving = map[store.TaskID]string{task0(0): "z"} }, `moving task 0_0: to "z"`},
		{"moving to its owner", func(d *Data) { d.Moving = map[store.TaskID]string{task0(0): "a"} }, "moving task 0_0: to a, which owns it already"},
		{"moving an unknown task", func(d *Data) { d.Moving = map[store.TaskID]string{task0(77): "a"} }, "moving task 0_77: no such task"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := fleet(3, 4, "a", "b")
			tc.mod(&d)
			s, err := NewSnapshot(d)
			if err == nil || s != nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
		})
	}
	d := fleet(3, 4, "a", "b")
	d.Application, d.Stores[0].Partitions = "", 0
	if _, err := NewSnapshot(d); !strings.Contains(err.Error(), "application id") || !strings.Contains(err.Error(), "0 partitions") {
		t.Fatalf("not everything at once: %v", err)
	}
}

// MR-12: neither what a snapshot was made of nor what it hands out is its own.
func TestSnapshotIsImmutable(t *testing.T) {
	d := fleet(3, 4, "a", "b")
	d.Moving = map[store.TaskID]string{task0(0): "b"}
	s := mustSnapshot(t, d)
	want := s.Data()

	spoil := func(d Data) {
		for i := range d.Instances {
			d.Instances[i].Endpoint = "spoilt:1"
			for j := range d.Instances[i].Active {
				d.Instances[i].Active[j] = store.TaskID{Subtopology: 66}
			}
			for j := range d.Instances[i].Standby {
				d.Instances[i].Standby[j] = store.TaskID{Subtopology: 66}
			}
		}
		for i := range d.Stores {
			d.Stores[i].Name = "spoilt"
		}
		clear(d.Moving)
	}
	spoil(d)
	spoil(s.Data())
	spoil(Data{Instances: s.Instances(), Stores: s.Stores()})
	for _, r := range [][]Replica{s.Replicas("counts", 0), s.Replicas("totals", 1)} {
		for i := range r {
			r[i] = Replica{Endpoint: "spoilt:1"}
		}
	}
	if in, _ := s.Instance("a"); len(in.Active) > 0 {
		in.Active[0] = store.TaskID{Subtopology: 66}
	}
	if got := s.Data(); !reflect.DeepEqual(got, want) {
		t.Fatalf("changed:\n%+v\nwant\n%+v", got, want)
	}
	if a, _ := s.Active("counts", 0); a.Endpoint != "a:9000" {
		t.Fatalf("%+v", a)
	}
}

// Data is what makes an equal snapshot.
func TestSnapshotDataRoundTrip(t *testing.T) {
	d := fleet(3, 12, "c", "a", "b")
	d.Moving = map[store.TaskID]string{task0(0): "b"}
	s := mustSnapshot(t, d)
	if again := mustSnapshot(t, s.Data()); !reflect.DeepEqual(again, s) {
		t.Fatal("differs")
	}
}

func BenchmarkNewSnapshot(b *testing.B) {
	d := fleet(1, 500, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewSnapshot(d); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshotOwnerOfKey(b *testing.B) {
	s := mustSnapshot(b, fleet(1, 500, "a", "b", "c"))
	key := []byte("customer-0000012345")
	b.ReportAllocs()
	for b.Loop() {
		p, err := s.Partition("counts", key)
		if err != nil {
			b.Fatal(err)
		}
		if _, ok := s.Active("counts", p); !ok {
			b.Fatal("no owner")
		}
	}
}
