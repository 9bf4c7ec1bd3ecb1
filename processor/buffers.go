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

// sizes is how large records were lately.
type sizes struct{ records, bytes int64 }

func (s *sizes) add(records int, bytes int64) {
	s.records += int64(records)
	s.bytes += bytes
	if s.records > 10_000 {
		s.records, s.bytes = s.records/2, s.bytes/2
	}
}

// fit is how many records of the usual size fit into room: at least one, at most limit.
func (s *sizes) fit(room int64, limit int) int {
	if s.records == 0 {
		return limit
	}
	return int(max(1, min(int64(limit), room/max(1, s.bytes/s.records))))
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
func (t *thread) inputShare() int64 {
	return max(1, t.rt.share(t.rt.cfg.InputBufferMaxBytes)) // of none, nothing would ever be fetched
}

// pollLimit is how many records the next poll may take, so that the share of the input buffers holds.
func (t *thread) pollLimit() int {
	_, bytes := t.buffered()
	return t.sizes.fit(t.inputShare()-bytes, t.rt.cfg.MaxPollRecords)
}

// holdBack pauses the inputs that have records while the thread's share of the input buffers is used up (KIP-770); those
// that have none go on, for a task may wait for them. resume undoes it when half of the share is free again.
func (t *thread) holdBack() {
	_, bytes := t.buffered()
	t.rt.metrics.inputBytes.Add(float64(bytes - t.waiting))
	t.waiting = bytes
	if bytes < t.inputShare() {
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

// pause stops the fetching of an input.
func (t *thread) pause(in *input) {
	if in.paused {
		return
	}
	in.paused = true
	t.rt.metrics.pauses.Inc()
	t.member.client.PauseFetchPartitions(map[string][]int32{in.tp.Topic: {int32(in.tp.Partition)}})
}

// resume fetches again what has room: half of the records of its partition, and half of the thread's bytes. An input
// that has nothing left is never held back: what the others hold may wait for it.
func (t *thread) resume() {
	_, bytes := t.buffered()
	room := bytes <= t.inputShare()/2
	for _, o := range t.running {
		for _, in := range o.task.inputs {
			few := in.waiting() <= t.rt.cfg.BufferedRecordsPerPartition/2
			if in.paused && (in.waiting() == 0 || room && few) {
				in.paused = false
				t.member.client.ResumeFetchPartitions(map[string][]int32{in.tp.Topic: {int32(in.tp.Partition)}})
			}
		}
	}
}
