package processor

import "github.com/twmb/franz-go/pkg/kgo"

// fetchedCost is what a waiting record costs beside its key, value and headers.
const fetchedCost = 200

// bytesOf is what a fetched record costs while it waits.
func bytesOf(r *kgo.Record) int64 {
	n := int64(len(r.Key)+len(r.Value)) + fetchedCost
	for _, h := range r.Headers {
		n += int64(len(h.Key) + len(h.Value))
	}
	return n
}

// buffered is how many records wait for their tasks, and their bytes.
func (t *thread) buffered() (records int, bytes int64) {
	for _, o := range t.running {
		for _, in := range o.task.inputs {
			records += in.waiting()
			bytes += in.bytes
		}
	}
	return records, bytes
}

// inputShare is the thread's part of Config.InputBufferMaxBytes.
func (t *thread) inputShare() int64 { return t.rt.cfg.InputBufferMaxBytes / int64(t.rt.cfg.NumStreamThreads) }

// holdBack pauses the inputs that have records while the thread's share of the input buffers is used up (KIP-770); those
// that have none go on, for a task may wait for them. resume undoes it when half of the share is free again.
func (t *thread) holdBack() {
	if _, bytes := t.buffered(); bytes < t.inputShare() {
		return
	}
	for _, o := range t.running {
		for _, in := range o.task.inputs {
			if in.waiting() > 0 {
				t.pause(in)
			}
		}
	}
}

func (t *thread) pause(in *input) {
	if in.paused {
		return
	}
	in.paused = true
	t.rt.metrics.pauses.Inc()
	t.member.client.PauseFetchPartitions(map[string][]int32{in.tp.Topic: {int32(in.tp.Partition)}})
}

// resume fetches again what has room: half of the records of its partition, and half of the thread's bytes.
func (t *thread) resume() {
	_, bytes := t.buffered()
	if bytes > t.inputShare()/2 {
		return
	}
	for _, o := range t.running {
		for _, in := range o.task.inputs {
			if in.paused && in.waiting() <= t.rt.cfg.BufferedRecordsPerPartition/2 {
				in.paused = false
				t.member.client.ResumeFetchPartitions(map[string][]int32{in.tp.Topic: {int32(in.tp.Partition)}})
			}
		}
	}
}
