package restore

import (
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

// TestCR11Verdict goes through the combinations of begin, end and checkpoint that others handled one by one.
func TestCR11Verdict(t *testing.T) {
	idA, idB := [16]byte{1}, [16]byte{2}
	at := func(next store.Offset) *store.LogPosition {
		return &store.LogPosition{TopicID: idA, LeaderEpoch: 3, Next: next}
	}
	log := func(begin, end store.Offset, have *store.LogPosition) evidence {
		return evidence{logged: true, begin: begin, end: end, topic: idA, leaderEpoch: 3, epochEnd: -1, have: have}
	}
	with := func(e evidence, set func(*evidence)) evidence { set(&e); return e }
	for _, c := range []struct {
		name   string
		e      evidence
		action action
		from   store.Offset
		reason string
	}{
		{"logging off", evidence{}, done, 0, ""},
		{"empty log, no copy", log(0, 0, nil), done, 0, ""},
		{"empty log that moved on, no copy", log(22512, 22512, nil), done, 22512, ""},
		{"empty log that moved on, synced copy", log(22512, 22512, at(22512)), done, 22512, ""},
		{"all there", log(0, 100, at(100)), done, 100, ""},
		{"one behind", log(0, 100, at(99)), resume, 99, ""},
		{"no copy", log(0, 100, nil), resume, 0, ""},
		{"no copy, log starts later", log(50, 100, nil), resume, 50, ""},
		{"gap before the log starts", log(50, 100, at(10)), rebuild, 50, "log starts at 50, local copy at 10"},
		{"copy at the log's start", log(50, 100, at(50)), resume, 50, ""},
		{"copy of nothing", log(0, 100, at(0)), resume, 0, ""},
		{"ahead of the log", log(0, 100, at(120)), rebuild, 0, "log ends at 100, local copy at 120"},
		{"recreated, shorter", with(log(0, 5, at(100)), func(e *evidence) { e.topic = idB }), rebuild, 0, "recreated"},
		{"recreated, longer", with(log(0, 500, at(100)), func(e *evidence) { e.topic = idB }), rebuild, 0, "recreated"},
		{"recreated, same length", with(log(0, 100, at(100)), func(e *evidence) { e.topic = idB }), rebuild, 0, "recreated"},
		{"broker without topic ids", with(log(0, 100, at(40)), func(e *evidence) { e.topic = [16]byte{} }), resume, 40, ""},
		{"leader epoch went back", with(log(0, 100, at(40)), func(e *evidence) { e.leaderEpoch = 2 }), rebuild, 0, "leader epoch 2"},
		{"leader epoch unknown", with(log(0, 100, at(40)), func(e *evidence) { e.leaderEpoch = -1 }), resume, 40, ""},
		{"truncated below the copy", with(log(0, 100, at(40)), func(e *evidence) { e.leaderEpoch, e.epochEnd = 5, 30 }), rebuild, 0, "truncated"},
		{"not truncated below the copy", with(log(0, 100, at(40)), func(e *evidence) { e.leaderEpoch, e.epochEnd = 5, 40 }), resume, 40, ""},
		{"truncated, then grown to the copy's end", with(log(0, 40, at(40)), func(e *evidence) { e.leaderEpoch, e.epochEnd = 5, 30 }), rebuild, 0, "truncated"},
		{"older than deletions, behind", with(log(0, 100, at(40)), func(e *evidence) { e.age, e.retention = 2*time.Hour, time.Hour }), rebuild, 0, "2h0m0s old"},
		{"older than deletions, but nothing happened", with(log(0, 40, at(40)), func(e *evidence) { e.age, e.retention = 2*time.Hour, time.Hour }), done, 40, ""},
		{"young enough", with(log(0, 100, at(40)), func(e *evidence) { e.age, e.retention = time.Hour, time.Hour }), resume, 40, ""},
		{"age unknown", with(log(0, 100, at(40)), func(e *evidence) { e.retention = time.Hour }), resume, 40, ""},
		{"negative position", log(0, 100, at(-1)), rebuild, 0, "no offset"},
		{"end before begin", log(50, 10, nil), refuse, 0, "start offset 50, end offset 10"},
		{"no begin", log(-1, 10, at(5)), refuse, 0, "start offset -1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := judge(c.e)
			if v.action != c.action || (v.action != refuse && v.from != c.from) {
				t.Errorf("%s from %d, want %s from %d", v.action, v.from, c.action, c.from)
			}
			if c.reason == "" && v.reason != "" || !strings.Contains(v.reason, c.reason) {
				t.Errorf("reason %q, want %q", v.reason, c.reason)
			}
		})
	}
}

func TestTimeLeft(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		took, want  time.Duration
	}{
		{0, 100, time.Second, 0}, {100, 100, time.Second, 0}, {25, 100, time.Second, 3 * time.Second}, {1, 2, 0, 0},
	} {
		if have := timeLeft(c.done, c.total, c.took); have != c.want {
			t.Errorf("%d of %d in %s: %s left, want %s", c.done, c.total, c.took, have, c.want)
		}
	}
}
