package restore

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/store"
)

// TestTold: a restore that takes long says every ten seconds how far it is, and how long the rest takes.
func TestTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m, err := newMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		r := &Restorer{log: slog.New(slog.NewTextHandler(&out, nil)), metrics: m}
		var last Progress
		j := newJob(r, Request{
			Task: newMemoryTask(t, 1), Changelogs: map[store.Name]Changelog{"s": {Topic: "s-changelog"}}, Progress: func(p Progress) { last = p },
		})
		j.stores[0].end = 1000
		for range 30 {
			time.Sleep(time.Second)
			j.stores[0].next += 10
			j.report(Restoring, nil)
		}
		if last.Done != 300 || last.Total != 1000 || last.Left != 70*time.Second {
			t.Errorf("%+v", last)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 || !strings.Contains(lines[1], "msg=restoring task=0_1 as=owner left=1m20s restored=200 total=1000") {
			t.Errorf("%d lines:\n%s", len(lines), out.String())
		}
	})
}

// TestTimeLeftOfAStandby: by the rate since it began to read.
func TestTimeLeftOfAStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Standby{began: time.Now(), shown: []*shownLog{{from: 100, next: 100, end: 200}, {from: 0, next: 50, end: 100}}}
		if done, total, left := s.Progress(); done != 50 || total != 200 || left != 0 {
			t.Errorf("at once: %d of %d, %s left", done, total, left)
		}
		time.Sleep(10 * time.Second)
		if done, total, left := s.Progress(); done != 50 || total != 200 || left != 30*time.Second {
			t.Errorf("%d of %d, %s left", done, total, left)
		}
	})
}
