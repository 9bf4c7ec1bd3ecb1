package restore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

func TestRestoreFromNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		res, err := r.Restore(t.Context(), w.request(task))
		if err != nil {
			t.Fatal(err)
		}
		if c := res.Inputs[store.TopicPartition{Topic: inputTopic}]; c.Exists || res.Sequence != 0 || res.StreamTime != -1 {
			t.Errorf("first start: %+v", res)
		}
		if cp := task.Checkpoint(); cp.Restoring || cp.Changelogs[countsStore].Next != 0 {
			t.Errorf("checkpoint %+v", cp)
		}
	})
}

// TestRestoreWholeState: committed transactions and plain records of two stores, an aborted transaction between, the
// committed offset with its metadata. The position ends behind the last control record (PL-06).
func TestRestoreWholeState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.transaction("a", kgo.TryCommit, changelogTopic, 1, kv{"x", "1", 10}, kv{"y", "1", 11})
		w.transaction("a", kgo.TryAbort, changelogTopic, 1, kv{"x", "bad", 12}, kv{"z", "bad", 12})
		w.produce(changelogTopic, 1, kv{"x", "2", 13}, kv{"w", "1", 14})
		w.transaction("b", kgo.TryCommit, otherTopic, 1, kv{"s", "1", 15})
		w.produce(changelogTopic, 0, kv{"other", "partition", 1})
		w.commitOffset(1, 42, commitmeta.Meta{Sequence: 7, StreamTime: 99, TransactionalID: "a"})
		r := w.restorer(nil)
		task := newMemoryTask(t, 1)
		var reports []Progress
		req := w.request(task)
		req.Progress = func(p Progress) { reports = append(reports, p) }
		res, err := r.Restore(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		wantContent(t, task, countsStore, "w=1@14", "x=2@13", "y=1@11")
		wantContent(t, task, seenStore, "s=1@15")
		in := store.TopicPartition{Topic: inputTopic, Partition: 1}
		if c := res.Inputs[in]; c.Next != 42 || !c.Exists || c.Meta.TransactionalID != "a" || res.Sequence != 7 || res.StreamTime != 99 {
			t.Errorf("result %+v", res)
		}
		if off := res.Position[inputTopic][1]; off != 41 {
			t.Errorf("position %v", res.Position)
		}
		cp := task.Checkpoint()
		if cp.Restoring || cp.Sequence != 7 || cp.Inputs[in] != 42 || cp.StreamTime != 99 || cp.WallTime != time.Now().UnixMilli() {
			t.Errorf("checkpoint %+v", cp)
		}
		// 2 records + marker, 2 aborted + marker, 2 plain.
		if pos := cp.Changelogs[countsStore]; pos.Next != 8 || pos.TopicID != w.changelog(changelogTopic).ID {
			t.Errorf("changelog position %+v, want 8", pos)
		}
		if pos := cp.Changelogs[seenStore]; pos.Next != 2 {
			t.Errorf("changelog position %+v, want 2", pos)
		}
		first, last := reports[0], reports[len(reports)-1]
		if first.Phase != Started || last.Phase != Ended || last.Err != nil || last.Done != 10 || last.Total != 10 {
			t.Errorf("progress from %+v to %+v", first, last)
		}
		// The same again has nothing to do.
		res, err = r.Restore(t.Context(), w.request(task))
		if err != nil || res.Records != 0 || res.Rebuilt != "" {
			t.Errorf("second restore: %+v, %v", res, err)
		}
	})
}
