package processor

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// handlers are the exception handlers of an application (upstream's ProcessingExceptionHandler and
// DeserializationExceptionHandler).
type handlers struct {
	deserialization, processing HandlerAction
	deadLetterTopic             string
}

func (c Config) handlers() handlers {
	return handlers{deserialization: c.DeserializationHandler, processing: c.ProcessingHandler, deadLetterTopic: c.DeadLetterTopic}
}

// answer is what the handlers say to an error of a record: why the record is dropped, what is done, and which setting says so.
func (h *handlers) answer(err error) (reason string, action HandlerAction, setting string) {
	if e, ok := errors.AsType[*DeserializationError](err); ok {
		return e.Reason, h.deserialization, "deserialization.exception.handler"
	}
	return processingReason(err), h.processing, "processing.exception.handler"
}

// judge decides about a record of a task that could not be processed: nil means go on with the next one.
func (h *handlers) judge(tk *task, r *kgo.Record, err error) error {
	if is[*outputError](err) || errors.Is(err, errStopHere) {
		return tk.fail(err)
	}
	if is[*flushError](err) {
		return &TaskError{Task: tk.id, Err: err} // the record in hand is not the one that was flushed
	}
	reason, action, setting := h.answer(err)
	switch action {
	case Continue:
		tk.dropped(reason, toNowhere)
		return nil
	case DeadLetter:
		tk.produced++
		if err := tk.env.out.letter(h.deadLetterTopic, r, letterHeaders(tk, r, err)); err != nil {
			return tk.fail(err)
		}
		tk.dropped(reason, toDeadLetters)
		return nil
	default:
		// Every instance that takes the task over ends at the same record, so the way out belongs into the text.
		return tk.fail(fmt.Errorf("%w (%s is %s; %s or %s goes on without such records)", err, setting, Fail, Continue, DeadLetter))
	}
}

// letterHeaders say where a dead letter came from and why, under upstream's names (KIP-1034).
func letterHeaders(tk *task, r *kgo.Record, err error) []kgo.RecordHeader {
	h := []kgo.RecordHeader{
		{Key: "__streams.errors.exception", Value: []byte(errorKind(err))},
		{Key: "__streams.errors.message", Value: []byte(err.Error())},
		{Key: "__streams.errors.topic", Value: []byte(r.Topic)},
		{Key: "__streams.errors.partition", Value: strconv.AppendInt(nil, int64(r.Partition), 10)},
		{Key: "__streams.errors.offset", Value: strconv.AppendInt(nil, r.Offset, 10)},
		{Key: "__streams.errors.task", Value: []byte(tk.id.String())},
	}
	if e, ok := errors.AsType[*nodeError](err); ok {
		h = append(h, kgo.RecordHeader{Key: "__streams.errors.node", Value: []byte(e.node)})
	}
	return h
}

func errorKind(err error) string {
	if e, ok := errors.AsType[*DeserializationError](err); ok {
		return e.Reason
	}
	return processingReason(err)
}

// dropLog counts records that are not processed, by reason, and logs the first of each burst with its coordinates: one
// line a minute and reason, with how many there were. Safe for concurrent use.
type dropLog struct {
	log      *slog.Logger
	metrics  *metrics
	listener Listener
	now      func() time.Time

	mu     sync.Mutex
	bursts map[string]*burst
}

type burst struct {
	since time.Time
	count int64 // since the last line
}

// destination is what becomes of a record that is not processed; a metric label.
type destination string

const (
	toNowhere     destination = "nowhere"
	toDeadLetters destination = "dead letter topic"
)

const burstInterval = time.Minute

func newDropLog(log *slog.Logger, m *metrics, l Listener, now func() time.Time) *dropLog {
	return &dropLog{log: log, metrics: m, listener: l, now: now, bursts: make(map[string]*burst)}
}

func (d *dropLog) drop(t *task, reason string, to destination) {
	d.metrics.dropped.WithLabelValues(reason, string(to)).Inc()
	d.listener.Dropped(DroppedInfo{Task: t.id, Record: t.current, Reason: reason, DeadLettered: to == toDeadLetters})
	d.mu.Lock()
	b := d.bursts[reason]
	now := d.now()
	if b == nil {
		b = &burst{}
		d.bursts[reason] = b
	}
	b.count++
	fresh := b.since.IsZero() || now.Sub(b.since) >= burstInterval
	n := b.count
	if fresh {
		b.since, b.count = now, 0
	}
	d.mu.Unlock()
	if fresh {
		d.log.Warn("record dropped", "reason", reason, "to", string(to),
			"task", t.id, "topic", t.current.Topic, "partition", t.current.Partition,
			"offset", t.current.Offset, "count", n)
	}
}
