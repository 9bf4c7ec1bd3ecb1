package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/cmd/statemesh/internal/feed"
	"github.com/statemesh/statemesh/examples/flights"
	"github.com/statemesh/statemesh/processor"
)

// Options of a demo.
type Options struct {
	// Kafka to run on; nil: an embedded broker.
	Kafka *processor.KafkaConfig
	// Sets are settings for the instances, "key=value", above those of the demo.
	Sets []string
	// Env of the instances.
	Env []string
	// Instances of the fleet, at least 1.
	Instances int
	// Partitions of the topic.
	Partitions int32
	// Records to load, at most [flights.Count].
	Records int
	// Speed limits the loading, in records per second. 0: as fast as the broker takes them.
	Speed float64
	// Standbys of each task.
	Standbys int
	// KillEvery is the time between kills while readers read, after everything is loaded; 0: there are none. Kills is how many.
	KillEvery time.Duration
	Kills     int
	// Dir keeps state and logs. Empty: a temporary directory, removed after a demo whose answers were all right.
	Dir string
	// Keep leaves the fleet up after the verification until the context ends.
	Keep bool
	// Out receives the story, in plain text.
	Out io.Writer
}

// Settings of the instances: short timeouts, since a demo kills one of them, and a short bound of the remote cache.
const (
	bound           = 2 * time.Second
	embeddedSession = 4 * time.Second
	kafkaSession    = 6 * time.Second // the least that brokers accept unless told otherwise
)

// Patience of the steps, far above what they take.
const (
	startTimeout   = 60 * time.Second
	catchUpTimeout = 2 * time.Minute
)

// demo is one run.
type demo struct {
	opts   Options
	dir    string
	kafka  processor.KafkaConfig
	app    string
	topic  string
	broker *process // nil on a Kafka of the user's
	fleet  *fleet
	client *client.Client
	say    *story
	report *Report

	half, all []view
}

// Run plays the demo. The report is valid also with an error, as far as the demo went. Wrong answers are no error: see
// [Report.Wrong].
func Run(ctx context.Context, opts Options) (_ *Report, err error) {
	begin := time.Now()
	d := &demo{opts: opts, say: &story{out: opts.Out}, report: &Report{Instances: opts.Instances, Partitions: int(opts.Partitions)}}
	defer func() {
		err = errors.Join(err, d.cleanUp(ctx, err))
		d.report.Seconds = time.Since(begin).Seconds()
	}()
	for _, step := range []func(context.Context) error{d.prepare, d.startBroker, d.startFleet, d.firstHalf, d.secondHalf, d.outages} {
		if err := step(ctx); err != nil {
			return d.report, err
		}
	}
	d.say.verdict(d.report, time.Since(begin))
	if opts.Keep && ctx.Err() == nil {
		d.say.commands(os.Args[0], d.fleet.nodes) // as it was called: it need not be on the PATH
		<-ctx.Done()
	}
	return d.report, nil
}

// prepare makes the directory and computes the answers.
func (d *demo) prepare(context.Context) (err error) {
	if d.dir = d.opts.Dir; d.dir == "" {
		if d.dir, err = os.MkdirTemp("", "statemesh-demo-"); err != nil {
			return err
		}
	} else if err = os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	if d.dir, err = filepath.Abs(d.dir); err != nil {
		return err
	}
	n := d.opts.Records
	for _, part := range []struct {
		rows  int
		views *[]view
	}{{n / 2, &d.half}, {n, &d.all}} {
		answers, err := flights.Compute(first(flights.Rows(), part.rows))
		if err != nil {
			return err
		}
		*part.views = truths(answers)
	}
	keys := 0
	for _, v := range d.all {
		keys += len(v.keys)
	}
	d.report.Records, d.report.Keys = n, keys
	d.say.title("%s flights, %d views with %s keys, %d instances", thousands(n), len(d.all), thousands(keys), d.opts.Instances)
	return nil
}

// startBroker starts the embedded broker, or takes names of its own on the user's.
func (d *demo) startBroker(ctx context.Context) error {
	if d.opts.Kafka != nil {
		d.kafka = *d.opts.Kafka
		d.app = "statemesh-demo-" + uuid.NewString()[:8]
		d.topic = d.app + "-" + flights.Topic
		d.report.Broker = strings.Join(d.kafka.Brokers, ",")
		d.say.line("broker", "%s; topics and group are named %s-...", d.report.Broker, d.app)
	} else {
		d.app, d.topic = "flights", flights.Topic
		binary, err := binaryPath()
		if err != nil {
			return err
		}
		if d.broker, err = start(binary, d.dir, "broker", d.opts.Env, "broker", "-o", "json", "--listen", "127.0.0.1:0"); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		e, err := d.broker.await(ctx, "listening")
		if err != nil {
			return err
		}
		d.kafka.Brokers, d.report.Broker = []string{e.Endpoint}, "embedded"
		d.say.line("broker", "embedded, for trials only, at %s", e.Endpoint)
	}
	_, err := feed.CreateTopic(ctx, d.kafka, feed.NewTopic{
		Name: d.topic, Partitions: d.opts.Partitions, ReplicationFactor: -1, Config: feed.KeepOld(), // the flights are of 2013
	})
	return err
}

// startFleet writes the configuration and starts the instances.
func (d *demo) startFleet(ctx context.Context) error {
	binary, err := binaryPath()
	if err != nil {
		return err
	}
	config := filepath.Join(d.dir, "mesh.yaml")
	mesh := bytes.ReplaceAll(flights.Mesh(), []byte("topic: "+flights.Topic+"\n"), []byte("topic: "+d.topic+"\n"))
	if err := os.WriteFile(config, mesh, 0o600); err != nil {
		return err
	}
	session := embeddedSession
	if d.broker == nil {
		session = kafkaSession
	}
	sets := []string{
		"application.id=" + d.app, "bootstrap.servers=" + strings.Join(d.kafka.Brokers, ","), "num.stream.threads=1", "processing.guarantee=exactly_once_v2",
		"session.timeout.ms=" + session.String(), "heartbeat.interval.ms=500ms", "transaction.timeout.ms=" + (session - time.Second).String(),
		"query.default.max.staleness.ms=" + bound.String(), "query.cache.ttl.ms=" + bound.String(),
	}
	if d.opts.Standbys > 0 {
		sets = append(sets, fmt.Sprintf("num.standby.replicas=%d", d.opts.Standbys))
	}
	d.fleet = &fleet{binary: binary, dir: d.dir, config: config, sets: append(sets, d.opts.Sets...), env: d.opts.Env}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the fleet did not start in time"))
	defer cancel()
	begin := time.Now()
	if err := d.fleet.startAll(ctx, d.opts.Instances); err != nil {
		return err
	}
	var seeds []string
	for i, n := range d.fleet.nodes {
		seeds = append(seeds, n.endpoint)
		label := ""
		if i == 0 {
			label = "fleet"
		}
		d.say.line(label, "instance %d at %s, process %d", n.number, n.endpoint, n.proc.pid())
	}
	d.say.line("", "all serve after %s", seconds(time.Since(begin)))
	d.client, err = client.New(client.Config{Seeds: seeds, Application: d.app})
	return err
}

// firstHalf loads undisturbed and verifies.
func (d *demo) firstHalf(ctx context.Context) error {
	d.say.gap()
	begin := time.Now()
	stats, err := d.load(ctx, first(flights.Rows(), d.opts.Records/2), nil)
	if err != nil {
		return err
	}
	caught, err := d.catchUp(ctx, d.half)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	d.report.LoadPerSecond = stats.PerSecond()
	d.report.RecordsPerSecond = float64(stats.Records) / took.Seconds()
	d.say.line("load", "%s records in %s", thousands(int(stats.Records)), seconds(stats.Took))
	if caught {
		d.say.line("", "in all views %s after the first was sent: %s records/s through the fleet", seconds(took), thousands(int(d.report.RecordsPerSecond)))
	}
	if err := d.showMap(ctx); err != nil {
		return err
	}
	return d.verifyBoth(ctx, "half", d.half)
}

// secondHalf kills a process while records flow, brings it back, and verifies again.
func (d *demo) secondHalf(ctx context.Context) error {
	d.say.gap()
	victim := d.fleet.nodes[len(d.fleet.nodes)/2]
	n := d.opts.Records
	at := n/2 + (n-n/2)*2/5
	struck := make(chan struct{})
	type loaded struct {
		stats feed.Stats
		err   error
	}
	done := make(chan loaded, 1)
	go func() {
		stats, err := d.load(ctx, after(flights.Rows(), n/2, n), func(number int) {
			if number == at {
				close(struck)
			}
		})
		done <- loaded{stats, err}
	}()
	// The loader sees ctx end too, so it is always waited for.
	kill := func() error {
		select {
		case <-struck:
			return d.kill(ctx, victim, at)
		case l := <-done:
			done <- l
			if l.err != nil {
				return l.err
			}
			return fmt.Errorf("record %d was never acknowledged", at)
		}
	}
	killErr := kill()
	l := <-done
	if err := errors.Join(killErr, l.err); err != nil {
		return err
	}
	d.say.line("load", "%s records in %s, all acknowledged", thousands(int(l.stats.Records)), seconds(l.stats.Took))
	if _, err := d.catchUp(ctx, d.all); err != nil {
		return err
	}
	if err := d.showMap(ctx); err != nil {
		return err
	}
	if err := d.verifyBoth(ctx, "all", d.all); err != nil {
		return err
	}
	for _, n := range d.fleet.survivors() {
		d.report.MemoryBytes = append(d.report.MemoryBytes, n.proc.memory())
	}
	return nil
}

// load produces rows. acked is told the number of each acknowledged one; nil: nobody.
func (d *demo) load(ctx context.Context, rows iter.Seq2[flights.Row, error], acked func(number int)) (feed.Stats, error) {
	target := feed.Target{Kafka: d.kafka, Topic: d.topic, Rate: d.opts.Speed}
	if acked != nil {
		target.OnRecord = func(r feed.Row) { acked(r.Line) }
	}
	return feed.Produce(ctx, target, func(yield func(feed.Row, error) bool) {
		for r, err := range rows {
			row := feed.Row{Line: r.Number, Timestamp: time.UnixMilli(r.EventTime)}
			if err == nil {
				row.Value = r.Value()
			}
			if r.Tailnum != "" {
				row.Key = []byte(r.Tailnum)
			}
			if !yield(row, err) {
				return
			}
		}
	})
}

// catchUp waits until a scan of each view shows what it must hold. When that does not come in time it says so and lets
// the verification find out what is wrong.
func (d *demo) catchUp(ctx context.Context, views []view) (caught bool, err error) {
	limit, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	var last error
	for {
		ok, err := holds(limit, d.client, views)
		if ok {
			return true, nil
		}
		if err != nil {
			last = err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-limit.Done():
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			d.say.line("", "not all views are right after %s", catchUpTimeout)
			if last != nil {
				d.say.line("", "  %v", last)
			}
			for _, n := range d.fleet.nodes {
				for _, line := range n.proc.errors() {
					d.say.line("", "  instance %d: %s", n.number, line)
				}
			}
			return false, nil
		}
	}
}

// verifyBoth asks everything without the remote caches, and again with them once what they may hold is too old to serve.
func (d *demo) verifyBoth(ctx context.Context, stage string, views []view) error {
	settled := time.Now()
	endpoints := make([]string, len(d.fleet.nodes))
	for i, n := range d.fleet.nodes {
		endpoints[i] = n.endpoint
	}
	for _, how := range passes() {
		if how.cache {
			select {
			case <-time.After(time.Until(settled.Add(bound))):
			case <-ctx.Done():
			}
		}
		v := verify(ctx, d.client, views, endpoints, how)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		v.Stage = stage
		d.report.Verifications = append(d.report.Verifications, v)
		d.say.verification(v)
	}
	return nil
}

// cleanUp ends every process, and removes what the demo made unless it is to be looked at.
func (d *demo) cleanUp(ctx context.Context, failure error) error {
	var errs []error
	if d.client != nil {
		errs = append(errs, d.client.Close())
	}
	if d.fleet != nil {
		errs = append(errs, d.fleet.stopAll())
	}
	if d.broker == nil && d.app != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		errs = append(errs, feed.Remove(ctx, d.kafka, d.app+"-", d.app))
	}
	if d.broker != nil {
		errs = append(errs, d.broker.stop(stopTimeout))
	}
	err := errors.Join(errs...)
	interrupted := failure != nil && ctx.Err() != nil
	switch {
	case d.opts.Dir != "" || d.dir == "":
	case failure == nil && err == nil && d.report.Wrong() == 0, interrupted:
		return errors.Join(err, os.RemoveAll(d.dir))
	case os.Remove(d.dir) == nil: // it was empty: nothing had been started
	default:
		d.say.line("logs", "kept in %s", d.dir)
	}
	return err
}

// others are the nodes but one.
func (d *demo) others(n *node) []*node {
	return slices.DeleteFunc(slices.Clone(d.fleet.nodes), func(o *node) bool { return o == n })
}
