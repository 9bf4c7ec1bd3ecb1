package streams_test

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

type (
	textRecord  = streams.Record[string, string]
	textContext = streams.Context[string, string]
)

// fn is a processor made of functions.
type fn struct {
	ctx     *textContext
	init    func(ctx *textContext) error
	process func(ctx *textContext, r *textRecord) error
	closed  *int
}

func (p *fn) Init(ctx *textContext) error {
	p.ctx = ctx
	if p.init != nil {
		return p.init(ctx)
	}
	return nil
}

func (p *fn) Process(r *textRecord) error { return p.process(p.ctx, r) }

func (p *fn) Close() error {
	if p.closed != nil {
		*p.closed++
	}
	return nil
}

// TestProcessNames: a name that is given uses up no position, as upstream; keys may have changed, so a grouping repartitions; not so behind
// ProcessValues.
func TestProcessNames(t *testing.T) {
	t.Parallel()
	make1 := func() streams.Processor[string, string, string, string] { return &fn{} }
	b := streams.NewBuilder()
	seen := streams.KeyValueStore("seen", serde.String(), serde.String())
	s := streams.Process(lines(b), make1, streams.Named("mine"), streams.Uses(seen))
	streams.Count(streams.GroupByKey(streams.Process(s, make1, streams.Uses(seen))), "counts")
	values := streams.ProcessValues(lines(b), func() streams.FixedKeyProcessor[string, string, string] { return &stamper{} })
	streams.Count(streams.GroupByKey(values), "values")
	got := describe(t, b)
	for _, want := range []string{
		"Processor: mine (stores: [seen])", "Processor: KSTREAM-PROCESSOR-0000000001 (stores: [seen])",
		"(topic: app-counts-repartition)", "Processor: KSTREAM-PROCESSVALUES-0000000007 (stores: [])\n      --> KSTREAM-AGGREGATE-",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestProcess: forwarding to all and to one by name, headers, metadata, times, punctuations by both clocks, dropping; Close is called.
func TestProcess(t *testing.T) {
	t.Parallel()
	closed := 0
	b := streams.NewBuilder()
	s := streams.Process(lines(b), func() streams.Processor[string, string, string, string] {
		return &fn{
			closed: &closed,
			init: func(ctx *textContext) error {
				if _, ok := ctx.RecordMetadata(); ok {
					return errors.New("there is a record in Init")
				}
				tell := func(who string) func(int64) error {
					return func(ts int64) error { return ctx.Forward(textRecord{Key: who, Value: fmt.Sprint(ts), Timestamp: ts}) }
				}
				_, stream := ctx.Schedule(10*time.Millisecond, processor.StreamTime, tell("stream"))
				_, wall := ctx.Schedule(time.Minute, processor.WallClockTime, tell("wall"))
				return errors.Join(stream, wall)
			},
			process: func(ctx *textContext, r *textRecord) error {
				m, _ := ctx.RecordMetadata()
				switch r.Value {
				case "drop":
					ctx.Drop("not wanted")
					return nil
				case "one":
					return ctx.ForwardTo("one", textRecord{Key: r.Key, Value: "only one", Timestamp: r.Timestamp})
				case "nobody":
					return ctx.ForwardTo("nobody", *r)
				case "before":
					return ctx.Forward(textRecord{Key: r.Key, Timestamp: -5})
				case "null":
					return ctx.Forward(textRecord{NoKey: true, NoValue: true, Timestamp: r.Timestamp})
				}
				r.Value = fmt.Sprintf("%s from %s-%d@%d at %d", r.Value, m.Topic, m.Partition, m.Offset, ctx.CurrentStreamTime())
				return ctx.Forward(*r)
			},
		}
	})
	s.Filter(always, streams.Named("one")).To("one")
	s.To("all")
	d := started(t, b, streamstest.Config{Start: time.UnixMilli(0)})
	pipeAll(t, d, "lines", "a=x@1", "b=one@2", "c=drop@3", "d=null@4", "e=y@25")
	d.AdvanceWallClock(time.Minute)
	wantTexts(t, d, "one", "a=x from lines-0@0 at 1@1", "stream=1@1", "b=only one@2", "null=null@4", "e=y from lines-0@4 at 25@25", "stream=25@25", "wall=60000@60000")
	wantTexts(t, d, "all", "a=x from lines-0@0 at 1@1", "stream=1@1", "null=null@4", "e=y from lines-0@4 at 25@25", "stream=25@25", "wall=60000@60000")
	if d := cmp.Diff(map[string]int{"not wanted": 1}, d.Dropped()); d != "" {
		t.Errorf("dropped (-want +got)\n%s", d)
	}
	for value, want := range map[string]string{"nobody": `no child is called "nobody"`, "before": "timestamp -5 is negative"} {
		d := started(t, b, streamstest.Config{})
		err := d.Try(func() { pipeAll(t, d, "lines", "k="+value+"@1") })
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "KSTREAM-PROCESSOR-0000000001") {
			t.Errorf("%s: %v, want %q of the processor", value, err, want)
		}
	}
	if err := d.Close(); err != nil || closed == 0 {
		t.Errorf("closed %d times, %v", closed, err)
	}
}

// keeperOfRecords forwards what it got one record later: it must not have the bytes of the one before, whose memory is another's by then.
type keeperOfRecords struct {
	ctx  *textContext
	last *textRecord
}

func (p *keeperOfRecords) Init(ctx *textContext) error { p.ctx = ctx; return nil }

func (p *keeperOfRecords) Process(r *textRecord) (err error) {
	if p.last != nil {
		p.last.Value += "!" // a field that is set is what is written
		err = p.ctx.Forward(*p.last)
	}
	kept := *r
	p.last = &kept
	return err
}

func (p *keeperOfRecords) Close() error { return nil }

// TestProcessKeepsNoBytes: a record in the hands of a user is encoded anew, whatever it was read from.
func TestProcessKeepsNoBytes(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	streams.Process(lines(b), func() streams.Processor[string, string, string, string] { return &keeperOfRecords{} }).
		WithKeys(serde.String()).WithValues(serde.String()).To("out")
	d := started(t, b, streamstest.Config{CommitInterval: streamstest.Never})
	pipeAll(t, d, "lines", "first=one@1", "other=two@2", "third=333@3")
	d.Commit()
	wantTexts(t, d, "out", "first=one!@1", "other=two!@2")
}

// stamper makes values of times, and forwards what it keeps later, by the wall clock.
type stamper struct {
	ctx  *streams.FixedKeyContext[string, string]
	kept []streams.FixedKeyRecord[string, string]
}

func (p *stamper) Init(ctx *streams.FixedKeyContext[string, string]) error {
	p.ctx = ctx
	_, err := ctx.Schedule(time.Second, processor.WallClockTime, func(now int64) error {
		for _, r := range p.kept {
			late := streams.WithValue(r, "late")
			late.Timestamp = now
			if err := ctx.Forward(late); err != nil {
				return err
			}
		}
		p.kept = nil
		return nil
	})
	return err
}

func (p *stamper) Process(r streams.FixedKeyRecord[string, string]) error {
	if k, ok := r.Key(); !ok || k == "" {
		p.ctx.Drop("no key")
		return nil
	}
	p.kept = append(p.kept, r)
	if r.NoValue {
		return p.ctx.ForwardTo("tombstones", r)
	}
	return p.ctx.Forward(streams.WithValue(r, strings.ToUpper(r.Value)))
}

func (p *stamper) Close() error { return nil }

// TestProcessValues: keys stay, also of what is forwarded later.
func TestProcessValues(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	s := streams.ProcessValues(lines(b), func() streams.FixedKeyProcessor[string, string, string] { return &stamper{} })
	s.Filter(always, streams.Named("values")).To("out")
	s.Filter(always, streams.Named("tombstones")).To("deleted")
	d := started(t, b, streamstest.Config{Start: time.UnixMilli(0), CommitInterval: time.Second})
	pipeAll(t, d, "lines", "a=x@1", "b@2", "=y@3")
	d.AdvanceWallClock(time.Second)
	d.Commit()
	wantTexts(t, d, "out", "a=X@1", "a=late@1000", "b=late@1000")
	wantTexts(t, d, "deleted", "a=X@1", "b=null@2", "a=late@1000", "b=late@1000")
}

// allStores writes to a store of each kind and tells what they hold.
type allStores struct {
	ctx *textContext
	declared
	plain    *streams.KeyValue[string, int64]
	stamped  *streams.TimestampedKeyValue[string, int64]
	windows  *streams.Window[string, int64]
	sessions *streams.Session[string, int64]
	versions *streams.Versioned[string, int64]
	counts   func(k string) (streams.Stamped[int64], bool, error)
}

type declared struct {
	plain    *streams.Store[*streams.KeyValue[string, int64]]
	stamped  *streams.Store[*streams.TimestampedKeyValue[string, int64]]
	windows  *streams.Store[*streams.Window[string, int64]]
	sessions *streams.Store[*streams.Session[string, int64]]
	versions *streams.Store[*streams.Versioned[string, int64]]
	counts   *streams.TableReader[string, int64]
}

func (p *allStores) Init(ctx *textContext) (err error) {
	p.ctx = ctx
	var errs [6]error
	p.plain, errs[0] = p.declared.plain.Open(ctx)
	p.stamped, errs[1] = p.declared.stamped.Open(ctx)
	p.windows, errs[2] = p.declared.windows.Open(ctx)
	p.sessions, errs[3] = p.declared.sessions.Open(ctx)
	p.versions, errs[4] = p.declared.versions.Open(ctx)
	p.counts, errs[5] = p.declared.counts.Open(ctx)
	return errors.Join(errs[:]...)
}

func rowsOf(rows iter.Seq2[streams.Row[string, int64], error]) string {
	var w strings.Builder
	for r, err := range rows {
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(&w, " %s[%d,%d]=%d@%d", r.Key, r.Start, r.End, r.Value, r.Timestamp)
	}
	return w.String()
}

func (p *allStores) Process(r *textRecord) error {
	n := int64(len(r.Value))
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	tell := func(format string, args ...any) {
		note(p.ctx.Forward(textRecord{Key: r.Key, Value: fmt.Sprintf(format, args...), Timestamp: r.Timestamp}))
	}
	old, had, err := p.plain.Get(r.Key)
	note(err)
	note(p.plain.Put(r.Key, n))
	was, hadStamp, err := p.stamped.PutIfAbsent(r.Key, n, r.Timestamp)
	note(err)
	note(p.windows.Put(r.Key, r.Timestamp/10*10, n, r.Timestamp))
	note(p.sessions.Put(r.Key, r.Timestamp, r.Timestamp+5, n))
	validTo, err := p.versions.Put(r.Key, n, r.Timestamp)
	note(err)
	count, counted, err := p.counts(r.Key)
	note(err)
	tell("had %d %v, stamped %d@%d %v, valid to %d, counted %d %v", old, had, was.Value, was.Timestamp, hadStamp, validTo, count.Value, counted)
	if r.Value != "tell" {
		return errors.Join(errs...)
	}
	tell("plain%s, range%s, stamped%s", rowsOf(p.plain.All()), rowsOf(p.plain.Range("a", "a")), rowsOf(p.stamped.Scan(store.Scan{Reverse: true})))
	tell("windows%s, of a%s", rowsOf(p.windows.All()), rowsOf(p.windows.Of("a", 0, 5)))
	tell("sessions%s, versions%s", rowsOf(p.sessions.Find("a", 0, 100)), rowsOf(p.versions.Versions("a", 0, 100)))
	v, ok, err := p.versions.GetAsOf("a", 5)
	note(err)
	s, found, err := p.sessions.Fetch("a", 1, 6)
	note(err)
	w, there, err := p.windows.Fetch("a", 0)
	note(err)
	deleted, gone, err := p.plain.Delete("a")
	note(err)
	_, left, err := p.plain.Get("a")
	note(err)
	tell("as of 5 %d to %d %v, session %d %v, window %d %v, deleted %d %v %v", v.Value, v.ValidTo, ok, s, found, w.Value, there, deleted, gone, left)
	return errors.Join(errs...)
}

func (p *allStores) Close() error { return nil }

// TestStores: each kind of store in the hands of a processor, and a table beside them.
func TestStores(t *testing.T) {
	t.Parallel()
	text, number := serde.String(), serde.Int64()
	b := streams.NewBuilder()
	in := lines(b)
	counts := streams.Count(streams.GroupByKey(in), "counts")
	all := declared{
		plain:    streams.KeyValueStore("plain", text, number, streams.InMemory()),
		stamped:  streams.TimestampedKeyValueStore("stamped", text, number, streams.CachingEnabled()),
		windows:  streams.WindowStore("windows", 10*time.Millisecond, time.Second, text, number),
		sessions: streams.SessionStore("sessions", time.Second, text, number),
		versions: streams.VersionedStore("versions", time.Second, text, number, streams.LoggingConfig(map[string]string{"min.insync.replicas": "1"})),
		counts:   streams.Reading(counts),
	}
	streams.Process(in, func() streams.Processor[string, string, string, string] { return &allStores{declared: all} },
		streams.Uses(all.plain, all.stamped, all.windows, all.sessions, all.versions, all.counts)).To("out")
	d := started(t, b, streamstest.Config{})
	pipeAll(t, d, "lines", "a=x@1", "a=xy@12", "b=tell@13")
	wantTexts(
		t, d, "out",
		"a=had 0 false, stamped 0@0 false, valid to -1, counted 1 true@1",
		"a=had 1 true, stamped 1@1 true, valid to -1, counted 2 true@12",
		"b=had 0 false, stamped 0@0 false, valid to -1, counted 1 true@13",
		"b=plain a[0,0]=2@-1 b[0,0]=4@-1, range a[0,0]=2@-1, stamped b[0,0]=4@13 a[0,0]=1@1@13",
		"b=windows a[0,10]=1@1 a[10,20]=2@12 b[10,20]=4@13, of a a[0,10]=1@1@13",
		"b=sessions a[1,6]=1@-1 a[12,17]=2@-1, versions a[1,12]=1@1 a[12,-1]=2@12@13",
		"b=as of 5 1 to 12 true, session 1 true, window 1 true, deleted 2 true false@13",
	)
	if n, ok := streamstest.NewKeyValue(d, "stamped", text, number).Get("b"); !ok || n != 4 {
		t.Errorf("stamped has %d, %v for b", n, ok)
	}
}

// TestStoreErrors: what is wrong with a store is an error of Build that names it; one that was not named in Uses cannot be opened.
func TestStoreErrors(t *testing.T) {
	t.Parallel()
	make1 := func() streams.Processor[string, string, string, string] { return &fn{} }
	for want, use := range map[string]streams.StateStore{
		`"x"`:             streams.KeyValueStore("x", serde.Serde[string]{}, serde.String()),
		`"Partitions"`:    streams.KeyValueStore("x", serde.String(), serde.String(), streams.Partitions(1)),
		"another builder": streams.Reading(streams.Count(streams.GroupByKey(lines(streams.NewBuilder())), "other")),
	} {
		b := streams.NewBuilder()
		streams.Process(lines(b), make1, streams.Uses(use))
		if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	kv := streams.KeyValueStore("mine", serde.String(), serde.String())
	b := streams.NewBuilder()
	streams.Process(lines(b), func() streams.Processor[string, string, string, string] {
		return &fn{init: func(ctx *textContext) error { _, err := kv.Open(ctx); return err }}
	})
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := streamstest.New(t.Context(), topology, streamstest.Config{}); !errors.Is(err, store.ErrUnknownStore) {
		t.Errorf("opened a store that Uses does not name: %v", err)
	}
}
