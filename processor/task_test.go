package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// bench drives one task without a broker: records are pushed, what is processed is noted.
type taskBench struct {
	t    *testing.T
	task *task
	seen []string
	now  time.Time
	drop []string
}

type seer struct {
	b    *taskBench
	ctx  *Context
	init func(*Context) error
	do   func(*Context, *Record) error
}

func (s *seer) Init(ctx *Context) error {
	s.ctx = ctx
	if s.init != nil {
		return s.init(ctx)
	}
	return nil
}

func (s *seer) Process(r *Record) error {
	m, _ := s.ctx.RecordMetadata()
	s.b.seen = append(s.b.seen, fmt.Sprintf("%s-%d@%d", m.Topic, m.Offset, r.Timestamp))
	if s.do != nil {
		return s.do(s.ctx, r)
	}
	return nil
}

func (s *seer) Close() error { return nil }

func newTaskBench(t *testing.T, change func(*seer), env func(*taskEnv), topics ...string) *taskBench {
	t.Helper()
	b := &taskBench{t: t, now: time.UnixMilli(1_000_000)}
	topology := NewTopology().AddSource("source", SourceOptions{Timestamp: LogAndSkipOnInvalidTimestamp}, topics...).
		AddProcessor("seer", func() Processor {
			s := &seer{b: b}
			if change != nil {
				change(s)
			}
			return s
		}, "source").
		AddStateStore(store.Spec{Name: "s", Kind: store.KindKeyValue}, "seer").
		AddStateStore(store.Spec{Name: "windows", Kind: store.KindTimestampedWindow, WindowSize: 10 * time.Millisecond, Retention: time.Second}, "seer").
		AddStateStore(store.Spec{Name: "sessions", Kind: store.KindSession, Retention: time.Second}, "seer").
		AddStateStore(store.Spec{Name: "versions", Kind: store.KindVersioned, Retention: time.Second}, "seer")
	built, err := topology.Build("app")
	if err != nil {
		t.Fatal(err)
	}
	stores, err := layered.Open(t.Context(), layered.Config{Dir: t.TempDir(), MinFreeBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stores.Close() })
	id := store.TaskID{}
	state, err := stores.OpenTask(t.Context(), id, built.StoreSpecs(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close(context.WithoutCancel(t.Context())) })
	e := &taskEnv{
		application: "app", now: func() time.Time { return b.now }, maxRecord: 1000, limitedBy: "the test",
		onDrop: func(t *task, reason string, _ destination) {
			b.drop = append(b.drop, fmt.Sprintf("%s@%d", reason, t.current.Offset))
		},
		onError: func(t *task, _ *kgo.Record, err error) error { return t.fail(err) },
	}
	if env != nil {
		env(e)
	}
	inputs := make([]store.TopicPartition, len(topics))
	start := make(map[store.TopicPartition]store.Offset)
	for i, topic := range topics {
		inputs[i] = store.TopicPartition{Topic: topic}
		start[inputs[i]] = 0
	}
	b.task = newTask(id, built.subs[0], e, inputs)
	res := restore.Result{StreamTime: -1, Position: store.Position{}}
	if err := b.task.begin(state, res, start); err != nil {
		t.Fatal(err)
	}
	return b
}

// push appends records "offset@timestamp" to input i; "offset!" is a control record.
func (b *taskBench) push(i int, records ...string) {
	b.t.Helper()
	in := b.task.inputs[i]
	var rs []*kgo.Record
	for _, s := range records {
		r := &kgo.Record{Topic: in.tp.Topic, Key: []byte("k"), LeaderEpoch: -1}
		var ts int64
		var err error
		if strings.HasSuffix(s, "!") {
			_, err = fmt.Sscanf(s, "%d!", &r.Offset)
			r.Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Control: true})
		} else {
			_, err = fmt.Sscanf(s, "%d@%d", &r.Offset, &ts)
		}
		if err != nil {
			b.t.Fatal(err)
		}
		r.Timestamp = time.UnixMilli(ts)
		rs = append(rs, r)
	}
	in.push(rs)
}

func (b *taskBench) process() {
	b.t.Helper()
	for {
		n, err := b.task.process(64)
		if err != nil {
			b.t.Fatal(err)
		}
		if n < 64 {
			return
		}
	}
}

func (b *taskBench) commit() { b.task.becomeCommitted(b.task.checkpoint()) }

func (b *taskBench) want(seen ...string) {
	b.t.Helper()
	if !slices.Equal(b.seen, seen) {
		b.t.Fatalf("processed %v, want %v", b.seen, seen)
	}
}

func TestTaskTakesSmallestTimestampFirst(t *testing.T) {
	t.Parallel()
	b := newTaskBench(t, nil, nil, "x", "y")
	b.push(0, "0@10", "1@30", "2@20")
	b.push(1, "0@15", "1@25")
	b.process()
	b.want("x-0@10", "y-0@15", "y-1@25", "x-1@30", "x-2@20")
	if b.task.streamTime != 30 {
		t.Fatalf("stream time %d, want 30", b.task.streamTime)
	}
}

func TestTaskWaitsForIdleInput(t *testing.T) {
	t.Parallel()
	b := newTaskBench(t, nil, func(e *taskEnv) { e.maxIdle = time.Second }, "x", "y")
	b.push(0, "0@10")
	b.process()
	b.want()
	b.now = b.now.Add(999 * time.Millisecond)
	b.push(1, "0@5")
	b.process()
	b.want("y-0@5") // then y is empty, and x waits anew
	b.now = b.now.Add(time.Second)
	b.process()
	b.want("y-0@5", "x-0@10")
}

// TestTaskWaitsForKnownRecords: without max.task.idle.ms a task waits for what a broker is known to have (KIP-695), and for nothing else: not for
// what may come, and not for ever where the log has offsets without records at its end.
func TestTaskWaitsForKnownRecords(t *testing.T) {
	t.Parallel()
	b := newTaskBench(t, nil, nil, "x", "y")
	y := b.task.inputs[1]
	y.reaches(2)
	b.push(0, "0@10", "1@20")
	b.process()
	b.want()
	b.push(1, "0@5", "1@15")
	b.process()
	b.want("y-0@5", "x-0@10", "y-1@15", "x-1@20")
	b.push(0, "2@30")
	b.process()
	b.want("y-0@5", "x-0@10", "y-1@15", "x-1@20", "x-2@30")
	y.reaches(4)
	b.push(0, "3@40", "4@50")
	b.process()
	b.now = b.now.Add(fetchPatience - 1)
	b.process()
	b.want("y-0@5", "x-0@10", "y-1@15", "x-1@20", "x-2@30")
	b.now = b.now.Add(1)
	b.process()
	b.want("y-0@5", "x-0@10", "y-1@15", "x-1@20", "x-2@30", "x-3@40", "x-4@50")
	y.reaches(5)
	b.push(0, "5@60")
	b.process()
	if len(b.seen) != 7 {
		t.Fatalf("processed %v: y has something new", b.seen)
	}
}

// TestTaskNeverIdles: the smallest timestamp among what there is goes first, whatever the brokers have.
func TestTaskNeverIdles(t *testing.T) {
	t.Parallel()
	b := newTaskBench(t, nil, func(e *taskEnv) { e.maxIdle = NeverIdle }, "x", "y")
	b.task.inputs[1].reaches(1)
	b.push(0, "0@10")
	b.process()
	b.want("x-0@10")
}

// TestTaskCommitsNextUnprocessed: PL-05, PL-06. Gaps that never held a record and control records at the end count as
// done; what waits does not.
func TestTaskCommitsNextUnprocessed(t *testing.T) {
	t.Parallel()
	b := newTaskBench(t, nil, nil, "x")
	b.push(0, "10@1", "11@2", "15@3", "16!", "20!")
	b.process()
	cp := b.task.checkpoint()
	tp := store.TopicPartition{Topic: "x"}
	if cp.Inputs[tp] != 21 {
		t.Errorf("next %d, want 21: after the last control record", cp.Inputs[tp])
	}
	if got := cp.Position["x"][0]; got != 20 {
		t.Errorf("position %d, want 20: what is skipped for good is behind us too", got)
	}
	b.commit()
	if b.task.uncommitted() {
		t.Error("uncommitted after a commit")
	}
	b.push(0, "30@1", "31@2")
	if _, err := b.task.process(1); err != nil {
		t.Fatal(err)
	}
	if next := b.task.checkpoint().Inputs[tp]; next != 31 {
		t.Errorf("next %d, want 31: 31 is not processed", next)
	}
}

// TestTaskRollback: an abort leaves nothing of state, position, stream time and punctuations.
func TestTaskRollback(t *testing.T) {
	t.Parallel()
	var punctuated []int64
	b := newTaskBench(t, func(s *seer) {
		s.init = func(ctx *Context) error {
			_, err := ctx.Schedule(10*time.Millisecond, StreamTime, func(ts int64) error {
				punctuated = append(punctuated, ts)
				return nil
			})
			return err
		}
		s.do = func(ctx *Context, r *Record) error {
			kv, err := ctx.Store("s")
			if err != nil {
				return err
			}
			return kv.Put([]byte(fmt.Sprint(r.Timestamp)), store.Value{Data: []byte("v")})
		}
	}, nil, "x")
	b.push(0, "0@100")
	b.process()
	b.commit()
	b.push(0, "1@200", "2@300")
	b.process()
	if err := b.task.rollback(); err != nil {
		t.Fatal(err)
	}
	if b.task.streamTime != 100 || b.task.inputs[0].next != 1 || b.task.uncommitted() || b.task.sequence != 1 {
		t.Fatalf("after rollback: stream time %d, next %d, sequence %d", b.task.streamTime, b.task.inputs[0].next, b.task.sequence)
	}
	if at := b.task.checkpoint().Position["x"][0]; at != 0 {
		t.Fatalf("position %d after rollback, want 0: later records are not in the state", at)
	}
	kv, err := b.task.keyValue("s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Get([]byte("200")); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("rolled back key: %v", err)
	}
	if _, err := kv.Get([]byte("100")); err != nil {
		t.Fatal(err)
	}
	b.push(0, "1@200")
	b.process()
	if want := []int64{100, 200, 300, 200}; !slices.Equal(punctuated, want) {
		t.Fatalf("punctuated at %v, want %v", punctuated, want)
	}
}

func TestTaskDropsNegativeTimestamps(t *testing.T) {
	t.Parallel()
	b := newTaskBench(t, nil, nil, "x")
	b.push(0, "0@-1", "1@5")
	b.process()
	b.want("x-1@5")
	if !slices.Equal(b.drop, []string{"negative timestamp@0"}) {
		t.Fatalf("dropped %v", b.drop)
	}
}

// TestTaskRefusesLargeValues: PL-14. Nothing is written of what the changelog would refuse.
func TestTaskRefusesLargeValues(t *testing.T) {
	t.Parallel()
	b := newTaskBench(t, func(s *seer) {
		s.do = func(ctx *Context, _ *Record) error {
			kv, err := ctx.Store("s")
			if err != nil {
				return err
			}
			return kv.Put([]byte("k"), store.Value{Data: make([]byte, 1001)})
		}
	}, nil, "x")
	b.push(0, "0@1")
	_, err := b.task.process(1)
	large, ok := errors.AsType[*store.TooLargeError](err)
	if !ok || large.Setting != "the test" || large.Limit != 1000 {
		t.Fatalf("put: %v, want too large", err)
	}
	if b.task.state.Dirty() {
		t.Error("the state was written")
	}
	failed, ok := errors.AsType[*TaskError](err)
	if !ok || failed.Record == nil || failed.Record.Offset != 0 || !strings.Contains(err.Error(), "processor seer") {
		t.Fatalf("error %v does not name task, record and processor", err)
	}
}

// TestSchedule follows upstream's PunctuationQueue: aligned to 0 by stream time, once for the newest time.
func TestSchedule(t *testing.T) {
	t.Parallel()
	var stream, wall []int64
	var cancel func()
	b := newTaskBench(t, func(s *seer) {
		s.init = func(ctx *Context) (err error) {
			if cancel, err = ctx.Schedule(10*time.Millisecond, StreamTime, func(ts int64) error { stream = append(stream, ts); return nil }); err != nil {
				return err
			}
			_, err = ctx.Schedule(100*time.Millisecond, WallClockTime, func(ts int64) error { wall = append(wall, ts); return nil })
			return err
		}
	}, nil, "x")
	b.push(0, "0@3", "1@4", "2@10", "3@19", "4@57", "5@59", "6@60")
	b.process()
	if want := []int64{3, 10, 57, 60}; !slices.Equal(stream, want) {
		t.Errorf("stream time punctuations at %v, want %v", stream, want)
	}
	for _, ms := range []int64{0, 99, 100, 150, 450, 499, 500} {
		if err := b.task.punctuate(1_000_000 + ms); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int64{1_000_100, 1_000_450, 1_000_500}; !slices.Equal(wall, want) {
		t.Errorf("wall clock punctuations at %v, want %v", wall, want)
	}
	cancel()
	b.push(0, "7@1000")
	b.process()
	if len(stream) != 4 {
		t.Errorf("a cancelled punctuation fired: %v", stream)
	}
}

func TestDecideOutcome(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		sequence store.Sequence
		by       string
		before   store.Sequence
		want     outcome
	}{
		{"first commit came through", 1, "me", 0, wasCommitted},
		{"first commit was aborted", 0, "", 0, wasAborted},
		{"commit came through", 8, "me", 7, wasCommitted},
		{"commit was aborted", 7, "me", 7, wasAborted},
		{"aborted, the last commit is a former owner's", 7, "them", 7, wasAborted},
		{"another owner committed the same number", 8, "them", 7, wasForeign},
		{"another owner is ahead", 12, "them", 7, wasForeign},
		{"offsets were reset by hand", 0, "", 7, wasForeign},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := decideOutcome(tc.sequence, tc.by, tc.before, "me"); got != tc.want {
				t.Errorf("outcome %d, want %d", got, tc.want)
			}
		})
	}
}
