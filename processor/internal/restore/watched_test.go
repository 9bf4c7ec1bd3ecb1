package restore

import (
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

var testTime = time.Unix(1000, 0)

// at is a moment of a test.
func at(s float64) time.Time { return testTime.Add(time.Duration(s * float64(time.Second))) }

// TestEnds: a position proves the newest question whose answer it has reached, and nothing of a later one.
func TestEnds(t *testing.T) {
	l := &watchedLog{}
	for i, end := range []store.Offset{10, 10, 20, 30} {
		if !l.add(watchedEnd{asked: at(float64(i)), end: end}) {
			t.Fatal("refused")
		}
	}
	for next, want := range map[store.Offset]time.Time{9: {}, 10: at(1), 19: at(1), 20: at(2), 29: at(2), 30: at(3), 99: at(3)} {
		e, ok := l.reached(next)
		if ok == want.IsZero() || !e.asked.Equal(want) {
			t.Errorf("at %d: %v %t, want %v", next, e.asked, ok, want)
		}
	}
	if l.add(watchedEnd{asked: at(9), end: 29}) {
		t.Error("an end that went back proves something")
	}
	if e, _ := l.reached(29); !e.asked.Equal(at(2)) {
		t.Errorf("at 29: %v", e.asked)
	}
	if !l.add(watchedEnd{asked: at(2.5), end: 25}) || len(l.ends) != 3 {
		t.Error("an answer that was overtaken counts")
	}
	if !l.add(watchedEnd{asked: at(10), end: 29, epoch: 1}) {
		t.Error("the end under a newer leader")
	}
	if e, ok := l.reached(29); !ok || !e.asked.Equal(at(10)) {
		t.Errorf("under a newer leader: %v %t", e.asked, ok)
	}
}

// TestEndsStayFew: under a transaction that hangs for long the last proof stays, however many rounds there are; and what
// comes to an end later is proven nearly as well as if all were remembered.
func TestEndsStayFew(t *testing.T) {
	l := &watchedLog{}
	l.add(watchedEnd{asked: at(0), end: 10})
	l.add(watchedEnd{asked: at(1), end: 10})
	for i := range 10_000 {
		l.add(watchedEnd{asked: at(float64(2 + i)), end: store.Offset(11 + i)})
		if len(l.ends) > keptEnds {
			t.Fatalf("%d ends", len(l.ends))
		}
		if e, ok := l.reached(10); !ok || !e.asked.Equal(at(1)) {
			t.Fatalf("after %d rounds: %v %t", i, e.asked, ok)
		}
	}
	for _, behind := range []int{1, 10, 100, 1000, 5000} {
		i := 9_999 - behind
		e, _ := l.reached(store.Offset(11 + i))
		if late := at(float64(2 + i)).Sub(e.asked).Seconds(); late < 0 || late > 1+float64(behind)/4 {
			t.Errorf("%d rounds behind: proven as of %.0f rounds before", behind, late)
		}
	}
	if e, _ := l.reached(11 + 9_999); !e.asked.Equal(at(10_001)) {
		t.Errorf("at the end: %v", e.asked)
	}
}

func watch(t *testing.T, changelogs map[store.Name]Changelog, inputs ...store.TopicPartition) *Watched {
	t.Helper()
	r, err := newRounds(RoundsConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.Watch(store.TaskID{}, inputs, changelogs)
}

// TestProofIsThatOfTheOldest: of several changelogs, with the inputs that were committed then.
func TestProofIsThatOfTheOldest(t *testing.T) {
	a, b := store.TopicPartition{Topic: "a"}, store.TopicPartition{Topic: "b", Partition: 3}
	id := [16]byte{1}
	w := watch(t, map[store.Name]Changelog{"x": {Topic: "x", ID: id}, "y": {Topic: "y"}}, b, a)
	meta := func(n int64) Committed {
		return Committed{Next: store.Offset(n), Exists: true, Meta: commitmeta.Meta{Sequence: store.Sequence(n), StreamTime: 10 * n}}
	}
	w.stood(at(0), map[store.TopicPartition]Committed{a: meta(4), b: {Exists: false}})
	first := w.standing()
	w.ended(w.logs["x"], watchedEnd{asked: at(1), end: 5, stand: first})
	w.ended(w.logs["y"], watchedEnd{asked: at(1.5), end: 7, stand: first})
	w.stood(at(2), map[store.TopicPartition]Committed{b: meta(6)}) // a's is not decided
	second := w.standing()
	w.ended(w.logs["x"], watchedEnd{asked: at(3), end: 9, stand: second})
	w.ended(w.logs["y"], watchedEnd{asked: at(3.5), end: 9, stand: second})
	positions := func(x, y store.Offset) map[store.Name]store.LogPosition {
		return map[store.Name]store.LogPosition{"x": {TopicID: id, Next: x}, "y": {Next: y}}
	}
	if p, ok := w.Proof(positions(8, 9)); !ok || !p.At.Equal(at(1)) || len(p.Inputs) != 1 || p.Inputs[a] != 4 || p.Sequence != 4 ||
		p.StreamTime != 40 || p.Position["a"][0] != 3 || len(p.Position) != 1 {
		t.Errorf("x is behind: %+v %t", p, ok)
	}
	if p, ok := w.Proof(positions(9, 9)); !ok || !p.At.Equal(at(3)) || p.Inputs[a] != 4 || p.Inputs[b] != 6 || p.Sequence != 6 || p.Position["b"][3] != 5 {
		t.Errorf("both are there: %+v %t", p, ok)
	}
	if c, ok := w.Committed(b); !ok || c.Next != 6 {
		t.Errorf("committed %+v %t", c, ok)
	}
	for name, pos := range map[string]map[store.Name]store.LogPosition{
		"behind all": positions(4, 9), "one is missing": {"x": {Next: 9}},
		"another topic": {"x": {TopicID: [16]byte{2}, Next: 99}, "y": {Next: 99}}, "none": nil,
	} {
		if p, ok := w.Proof(pos); ok {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, ok := watch(t, nil, a).Proof(nil); ok {
		t.Error("a task without changelogs is proven by nothing")
	}
}

// TestProofOfASourceTopic: the committed offset is the end; one that a transaction is about to change proves nothing new, for
// it may have been committed before it was asked for.
func TestProofOfASourceTopic(t *testing.T) {
	in := store.TopicPartition{Topic: "in"}
	w := watch(t, map[store.Name]Changelog{"x": {Topic: "in", Replay: func([]Record) error { return nil }}})
	proof := func(next store.Offset) time.Time {
		p, _ := w.Proof(map[store.Name]store.LogPosition{"x": {Next: next}})
		return p.At
	}
	w.stood(at(0), map[store.TopicPartition]Committed{in: {}})
	if got := proof(0); !got.Equal(at(0)) {
		t.Errorf("nothing is committed: %v", got)
	}
	w.stood(at(1), map[store.TopicPartition]Committed{in: {Next: 5, Exists: true}})
	w.stood(at(2), nil)
	if got := proof(5); !got.Equal(at(1)) {
		t.Errorf("undecided: %v", got)
	}
	if got := proof(4); !got.Equal(at(0)) {
		t.Errorf("behind: %v", got)
	}
	w.stood(at(3), map[store.TopicPartition]Committed{in: {Next: 3, Exists: true}})
	if got := proof(4); !got.Equal(at(3)) {
		t.Errorf("offsets that were reset: %v", got)
	}
}

// TestChanged: what waits for news of a task hears of them once, and of its end for good.
func TestChanged(t *testing.T) {
	in := store.TopicPartition{Topic: "in"}
	w := watch(t, map[store.Name]Changelog{"x": {Topic: "x"}}, in)
	told := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	c := w.Changed()
	w.stood(at(0), map[store.TopicPartition]Committed{in: {Next: 1, Exists: true}})
	if !told(c) {
		t.Error("an offset is no news")
	}
	c = w.Changed()
	w.stood(at(1), map[store.TopicPartition]Committed{in: {Next: 1, Exists: true}})
	if told(c) {
		t.Error("the same offset is news")
	}
	w.ended(w.logs["x"], watchedEnd{asked: at(2), end: 0})
	if !told(c) || told(w.Changed()) {
		t.Error("an end is news, once")
	}
	w.Close()
	w.Close()
	for range 2 {
		if !told(w.Changed()) {
			t.Error("the end is no news")
		}
	}
}
