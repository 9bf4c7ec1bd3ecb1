package streams_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// facts is what all contexts tell.
type facts interface {
	streams.ProcessorContext
	ApplicationID() string
	NodeName() string
	CurrentStreamTime() int64
	CurrentSystemTime() time.Time
	Registerer() prometheus.Registerer
}

func tell(c facts) string {
	return fmt.Sprintf("%s %s at %d, %s, metrics %t", c.ApplicationID(), c.NodeName(), c.CurrentStreamTime(), c.CurrentSystemTime().Format(time.TimeOnly), c.Registerer() != nil)
}

// teller forwards what its context tells.
type teller struct {
	ctx *streams.FixedKeyContext[string, string]
}

func (p *teller) Init(ctx *streams.FixedKeyContext[string, string]) error { p.ctx = ctx; return nil }

func (p *teller) Process(r streams.FixedKeyRecord[string, string]) error {
	return p.ctx.Forward(streams.WithValue(r, tell(p.ctx)))
}

func (p *teller) Close() error { return nil }

// TestContextFacts: contexts of both kinds know the application, their task and operator, and both times.
func TestContextFacts(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{Partitions: map[string]int32{"in": 2}}, func(b *streams.Builder) {
		in := texts(b, "in")
		streams.ProcessValues(in, func() streams.FixedKeyProcessor[string, string, string] { return &teller{} }, streams.Named("values")).To("out")
		streams.Process(in, func() streams.Processor[string, string, string, string] {
			return &fn{process: func(ctx *textContext, r *textRecord) error {
				return ctx.Forward(textRecord{Key: ctx.TaskID().String(), Value: tell(ctx), Timestamp: r.Timestamp})
			}}
		}, streams.Named("keys")).To("keyed")
	})
	d.AdvanceWallClock(time.Minute)
	streamstest.NewInput(d, "in", serde.String(), serde.String()).To(1).Pipe("a", "x", 7)
	want(t, "fixed keys", read(d, serde.String())(), "a=streamstest values at 7, 00:01:00, metrics false@7")
	want(t, "keys", streamstest.NewOutput(d, "keyed", serde.String(), serde.String()).ReadStrings(), "0_1=streamstest keys at 7, 00:01:00, metrics false@7")
}

// TestRequestedCommit: what a processor asks for happens when its record is done, whatever the interval is.
func TestRequestedCommit(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{CommitInterval: streamstest.Never}, func(b *streams.Builder) {
		streams.Process(texts(b, "in"), func() streams.Processor[string, string, string, string] {
			return &fn{process: func(ctx *textContext, r *textRecord) error {
				if r.Value == "now" {
					ctx.RequestCommit()
				}
				return ctx.Forward(*r)
			}}
		}).To("out")
	})
	in, out := streamstest.NewInput(d, "in", serde.String(), serde.String()), read(d, serde.String())
	pipe(in, "a=x@1")
	want(t, "before", out())
	pipe(in, "a=now@2")
	want(t, "after", out(), "a=x@1", "a=now@2")
}
