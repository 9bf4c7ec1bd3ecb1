package sink

import (
	"context"
	"errors"
	"sort"
	"time"

	"github.com/statemesh/statemesh/processor/changes"
)

// handler is the sink as the reader of the topic sees it.
type handler Sink

var _ changes.Handler = (*handler)(nil)

// Begin reads the database's offset, and compares it with what there is of the topic.
func (h *handler) Begin(ctx context.Context, log changes.Log) (changes.Position, error) {
	s := (*Sink)(h)
	place := Place{Sink: s.id, Topic: log.Topic, TopicID: log.ID, Partition: log.Partition}
	var at Offset
	var asked time.Time
	err := s.persist(ctx, "begin", log.Partition, func(ctx context.Context) (err error) {
		asked = time.Now()
		at, err = s.cfg.Target.Begin(ctx, place, log.Start)
		return err
	})
	if err != nil {
		return changes.Position{}, err
	}
	gap, err := judge(s.id, at, log, s.reader.schema.Append)
	if err != nil {
		return changes.Position{}, err
	}
	if gap {
		s.metrics.gaps.Inc()
		s.log.WarnContext(ctx, "compacted topic begins behind the database's offset, read on at its beginning", "topic", log.Topic,
			"partition", log.Partition, "offset", at.Next, "log_start", log.Start)
	}
	row, err := s.reader.values.NewRow(s.reader.programs...)
	if err != nil {
		return changes.Position{}, err
	}
	caughtUp := asked.Add(-at.Age)
	if at.Next >= log.End {
		caughtUp = log.Asked
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[log.Partition] = &part{log: log, place: place, row: row, caughtUp: caughtUp}
	return changes.Position{Next: at.Next, Epoch: at.Epoch}, nil
}

// Apply makes rows of a batch and has them written.
func (h *handler) Apply(ctx context.Context, in changes.Batch) (int64, error) {
	s := (*Sink)(h)
	s.mu.Lock()
	p := s.parts[in.Partition]
	s.mu.Unlock()
	if in.Caught && in.CaughtUp.After(p.caughtUp) {
		p.caughtUp = in.CaughtUp
	}
	if err := s.stale(p); err != nil {
		return 0, err
	}
	weight := min(rowBytes(in.Records), s.cfg.RowBytes)
	if err := s.rows.Acquire(ctx, weight); err != nil {
		return 0, err
	}
	defer s.rows.Release(weight)
	rows, undecoded, failed := s.decode(p, in.Records)
	b := Batch{Place: p.place, From: in.From, Next: in.Next, Epoch: in.Epoch, Caught: in.Caught, Rows: rows, OnError: s.cfg.OnError}
	if failed != nil {
		return s.before(ctx, p, b, failed)
	}
	next, err := s.apply(ctx, p, b, undecoded)
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return s.before(ctx, p, b, refused)
	}
	return next, err
}

// before applies what lies before a record that is no row, and returns why it is none.
func (s *Sink) before(ctx context.Context, p *part, b Batch, refused *RefusedError) (int64, error) {
	b.Next, b.Epoch, b.Caught = refused.Offset, -1, false
	b.Rows = b.Rows[:sort.Search(len(b.Rows), func(i int) bool { return b.Rows[i].Offset >= refused.Offset })]
	if b.Next <= b.From {
		return 0, refused
	}
	next, err := s.apply(ctx, p, b, nil)
	if err == nil && next == b.Next {
		err = refused
	}
	return next, err
}

// stale reports a partition that deletions may have been forgotten of.
func (s *Sink) stale(p *part) error {
	retention := p.log.DeleteRetention
	if age := time.Since(p.caughtUp); !s.reader.schema.Append && p.log.Compacts && retention > 0 && age > retention {
		return &StaleError{Sink: s.id, Topic: p.log.Topic, Partition: p.log.Partition, Age: age, Retention: retention}
	}
	return nil
}

// rowBytes estimates what rows take that are made of records, with what a target makes of them (BenchmarkUpsert in sink/postgres).
func rowBytes(records []changes.Record) int64 {
	const row, times = 1 << 10, 4
	bytes := int64(len(records)) * row
	for i := range records {
		bytes += times * int64(len(records[i].Key)+len(records[i].Value))
	}
	return bytes
}

// decode decodes records. An error is the first one's that is no row, under Fail, after those before it.
func (s *Sink) decode(p *part, records []changes.Record) (rows []Row, refused []Refusal, failed *RefusedError) {
	rows = make([]Row, 0, len(records))
	for i := range records {
		row, err := s.reader.row(p.row, p.place, &records[i])
		if err == nil {
			rows = append(rows, row)
			continue
		}
		r := Refusal{Offset: records[i].Offset, Code: reasonOf(err)}
		if s.cfg.OnError == Fail {
			return rows, refused, &RefusedError{Topic: p.place.Topic, Partition: p.place.Partition, Refusal: r, Err: err}
		}
		refused = append(refused, r)
	}
	return rows, refused, nil
}

// apply has the target apply a batch, and counts.
func (s *Sink) apply(ctx context.Context, p *part, b Batch, undecoded []Refusal) (int64, error) {
	var res Result
	tries := 0
	err := s.persist(ctx, "apply", p.place.Partition, func(ctx context.Context) (err error) {
		tries++
		b.Age = time.Since(p.caughtUp)
		began := time.Now()
		if res, err = s.cfg.Target.Apply(ctx, b); err == nil {
			s.metrics.commitSeconds.Observe(time.Since(began).Seconds())
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if res.Next != b.Next {
		s.metrics.moved.Inc()
		s.log.WarnContext(ctx, "another instance has moved the database's offset, read on from there", "topic", p.place.Topic,
			"partition", p.place.Partition, "offset", b.From, "found", res.Next)
		return res.Next, nil
	}
	// Of an attempt whose answer was lost, what was applied is not known in detail.
	if res.Upserts+res.Deletes+len(res.Refused) == 0 && tries > 1 {
		res.Upserts, res.Deletes = count(b.Rows)
	}
	s.metrics.batches.Inc()
	s.metrics.rows.Add(float64(res.Upserts))
	s.metrics.deletes.Add(float64(res.Deletes))
	for _, r := range append(undecoded, res.Refused...) {
		s.metrics.refused.WithLabelValues(r.Code).Inc()
		s.log.WarnContext(ctx, "record is no row, passed over", "topic", p.place.Topic, "partition", p.place.Partition, "offset", r.Offset,
			"reason", r.Code, "detail", r.Detail)
	}
	return res.Next, nil
}

func count(rows []Row) (upserts, deletes int) {
	for _, r := range rows {
		if r.Values == nil {
			deletes++
		} else {
			upserts++
		}
	}
	return upserts, deletes
}

// Lag is shown.
func (h *handler) Lag(partition int32, offsets int64) { (*Sink)(h).lag(partition, offsets) }
