package kafka

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func client(t *testing.T, opts []kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func testConfig() Config { return Config{Brokers: []string{"127.0.0.1:1"}} }

func testThread() Thread {
	return Thread{Group: "app", Balancer: kgo.CooperativeStickyBalancer(), Topics: []string{"in"}, TransactionalID: "app-1"}
}

// TestCF05OptionsReadBack pins what each of our clients really runs with: a library whose defaults move must fail here.
func TestCF05OptionsReadBack(t *testing.T) {
	type want map[string]struct{ opt, value any }
	shared := want{
		"dial timeout":       {kgo.DialTimeout, 10 * time.Second},
		"request timeout":    {kgo.RequestTimeoutOverhead, 10 * time.Second},
		"idle":               {kgo.ConnIdleTimeout, 5 * time.Minute},
		"metadata max":       {kgo.MetadataMaxAge, 5 * time.Minute},
		"metadata min":       {kgo.MetadataMinAge, 250 * time.Millisecond},
		"missing topic":      {kgo.ConsiderMissingTopicDeletedAfter, 15 * time.Second},
		"write bytes":        {kgo.BrokerMaxWriteBytes, int32(100 << 20)},
		"read bytes":         {kgo.BrokerMaxReadBytes, int32(100 << 20)},
		"inflate":            {kgo.MaxDecompressBatchBytes, 64 << 20},
		"auto create":        {kgo.AllowAutoTopicCreation, false},
		"client metrics off": {kgo.DisableClientMetrics, true},
		"retries":            {kgo.RequestRetries, int64(math.MaxInt32)},
		"retry timeout":      {kgo.RetryTimeout, 30 * time.Second},
		"instance id":        {kgo.InstanceID, ""},
		"reset":              {kgo.ConsumeResetOffset, kgo.NoResetOffset()},
		"isolation":          {kgo.FetchIsolationLevel, int8(1)},
	}
	direct := want{
		"start":          {kgo.ConsumeStartOffset, kgo.NoResetOffset()},
		"fetches":        {kgo.MaxConcurrentFetches, 0},
		"fetch sessions": {kgo.DisableFetchSessions, true},
		"group":          {kgo.ConsumerGroup, ""},
		"txn id":         {kgo.TransactionalID, ""},
	}
	thread := want{
		"start":               {kgo.ConsumeStartOffset, kgo.NewOffset().AtStart()},
		"fetches":             {kgo.MaxConcurrentFetches, 4},
		"fetch bytes":         {kgo.FetchMaxBytes, int32(1 << 20)},
		"fetch partition":     {kgo.FetchMaxPartitionBytes, int32(1 << 20)},
		"fetch wait":          {kgo.FetchMaxWait, 500 * time.Millisecond},
		"fetch min":           {kgo.FetchMinBytes, int32(1)},
		"group":               {kgo.ConsumerGroup, "app"},
		"session":             {kgo.SessionTimeout, 45 * time.Second},
		"rebalance":           {kgo.RebalanceTimeout, 60 * time.Second},
		"heartbeat":           {kgo.HeartbeatInterval, 3 * time.Second},
		"block on poll":       {kgo.BlockRebalanceOnPoll, true},
		"auto commit off":     {kgo.DisableAutoCommit, true},
		"acks":                {kgo.RequiredAcks, kgo.AllISRAcks()},
		"idempotence off":     {kgo.DisableIdempotentWrite, false},
		"cancellation":        {kgo.AllowIdempotentProduceCancellation, false},
		"in flight":           {kgo.MaxProduceRequestsInflightPerBroker, 1},
		"batch bytes":         {kgo.ProducerBatchMaxBytes, int32(1_000_012)},
		"buffered records":    {kgo.MaxBufferedRecords, int64(16 << 20 / 320)},
		"buffered bytes":      {kgo.MaxBufferedBytes, int64(16 << 20)},
		"linger":              {kgo.ProducerLinger, 5 * time.Millisecond},
		"manual flush":        {kgo.ManualFlushing, false},
		"produce timeout":     {kgo.ProduceRequestTimeout, 10 * time.Second},
		"record retries":      {kgo.RecordRetries, int64(math.MaxInt64)},
		"record timeout":      {kgo.RecordDeliveryTimeout, time.Duration(0)},
		"unknown topics":      {kgo.UnknownTopicRetries, int64(4)},
		"stop on loss":        {kgo.StopProducerOnDataLossDetected, true},
		"streaming":           {kgo.StreamingCompression, false},
		"transaction backoff": {kgo.ConcurrentTransactionsBackoff, 5 * time.Millisecond},
		"txn id":              {kgo.TransactionalID, "app-1"},
		"txn timeout":         {kgo.TransactionTimeout, 10 * time.Second},
		"server side":         {kgo.ServerSideBalancer, false},
	}
	opts, err := testConfig().Thread(testThread())
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []struct {
		name string
		opts []kgo.Opt
		own  want
	}{{"direct", testConfig().Direct(), direct}, {"admin", testConfig().Admin(), direct}, {"thread", opts, thread}} {
		t.Run(role.name, func(t *testing.T) {
			cl := client(t, role.opts)
			for _, set := range []want{shared, role.own} {
				for name, w := range set {
					if have := cl.OptValue(w.opt); have != w.value {
						t.Errorf("%s: %v (%T), want %v (%T)", name, have, have, w.value, w.value)
					}
				}
			}
		})
	}
	cl := client(t, opts)
	if have := cl.OptValue(kgo.Balancers).([]kgo.GroupBalancer); len(have) != 1 {
		t.Errorf("%d balancers, want the one given", len(have))
	}
	timeouts := cl.OptValue(kgo.RetryTimeoutFn).(func(int16) time.Duration)
	for _, key := range []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat} {
		if d := timeouts(int16(key)); d != 0 {
			t.Errorf("%s is repeated for %s, want without an end", key.Name(), d)
		}
	}
	if d := timeouts(int16(kmsg.Produce)); d != 30*time.Second {
		t.Errorf("requests are repeated for %s, want the retry timeout", d)
	}
}

// TestCF04HugeTimeouts: what does not fit into Kafka's 32-bit milliseconds is refused by name.
func TestCF04HugeTimeouts(t *testing.T) {
	for _, huge := range []time.Duration{25 * 24 * time.Hour, math.MaxInt64} {
		for name, set := range map[string]func(*Thread){
			"SessionTimeout":     func(t *Thread) { t.SessionTimeout = huge },
			"RebalanceTimeout":   func(t *Thread) { t.RebalanceTimeout = huge },
			"TransactionTimeout": func(t *Thread) { t.TransactionTimeout = huge },
			"HeartbeatInterval":  func(t *Thread) { t.HeartbeatInterval = huge },
		} {
			th := testThread()
			set(&th)
			if _, err := testConfig().Thread(th); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s = %s: error %v, want one that names it", name, huge, err)
			}
		}
		for name, set := range map[string]func(*Config){
			"DialTimeout":    func(c *Config) { c.DialTimeout = huge },
			"RequestTimeout": func(c *Config) { c.RequestTimeout = huge },
			"RetryTimeout":   func(c *Config) { c.RetryTimeout = huge },
			"MetadataMaxAge": func(c *Config) { c.MetadataMaxAge = huge },
		} {
			c := testConfig()
			set(&c)
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s = %s: error %v, want one that names it", name, huge, err)
			}
		}
	}
	th := testThread()
	th.SessionTimeout, th.TransactionTimeout = 10*time.Second, 10*time.Second
	if err := th.Validate(); err == nil || !strings.Contains(err.Error(), "TransactionTimeout") {
		t.Errorf("transaction timeout = session timeout: error %v, want one", err)
	}
	// The largest legal values reach the client unchanged.
	th.SessionTimeout, th.RebalanceTimeout, th.TransactionTimeout = MaxTimeout, MaxTimeout, MaxTimeout-time.Millisecond
	opts, err := testConfig().Thread(th)
	if err != nil {
		t.Fatal(err)
	}
	if d := client(t, opts).OptValue(kgo.SessionTimeout); d != MaxTimeout {
		t.Errorf("session timeout %v, want %s", d, MaxTimeout)
	}
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	c := Config{
		Brokers: []string{"nohost"}, SASL: &SASL{Mechanism: "GSSAPI"}, Compression: "brotli",
		FetchBytes: 5, ProduceBytes: 1 << 40, MaxRecordBytes: 1, DialTimeout: time.Nanosecond,
	}
	err := c.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{"Brokers", "SASL.Mechanism", "SASL.User", "SASL.Password", "Compression", "FetchBytes", "ProduceBytes", "MaxRecordBytes", "DialTimeout"} {
		if !strings.Contains(err.Error(), "kafka "+field) {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
	if err := testConfig().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	if err := (Thread{}).Validate(); err == nil {
		t.Error("an empty thread is valid")
	}
}

func TestCompressionNames(t *testing.T) {
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd", ""} {
		c := testConfig()
		c.Compression = name
		if _, err := c.Thread(testThread()); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestSC07PasswordIsNotPrinted: a configuration may be logged or end up in an error.
func TestSC07PasswordIsNotPrinted(t *testing.T) {
	s := SASL{Mechanism: MechanismPlain, User: "ann", Password: "hunter2"}
	var buf bytes.Buffer
	slog.New(slog.NewTextHandler(&buf, nil)).Info("config", "sasl", s, "pointer", &s)
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v", s, &s, s), buf.String()} {
		if strings.Contains(text, "hunter2") || !strings.Contains(text, "ann") {
			t.Errorf("printed as %q", text)
		}
	}
}

func TestPartitionerFollowsTopic(t *testing.T) {
	p := partitioner{
		manual: func(topic string) bool { return strings.HasSuffix(topic, "-changelog") },
		byKey:  kgo.StickyKeyPartitioner(nil), given: kgo.ManualPartitioner(),
	}
	if n := p.ForTopic("app-s-changelog").Partition(&kgo.Record{Key: []byte("21"), Partition: 7}, 10); n != 7 {
		t.Errorf("changelog record went to %d, want the partition it names", n)
	}
	// murmur2("21") = -973932308 in Kafka's own test vectors.
	if n := p.ForTopic("out").Partition(&kgo.Record{Key: []byte("21"), Partition: 7}, 10); n != (-973932308&0x7fffffff)%10 {
		t.Errorf("keyed record went to %d, want %d", n, (-973932308&0x7fffffff)%10)
	}
}

func TestLoggerLevels(t *testing.T) {
	var buf bytes.Buffer
	var lv slog.LevelVar
	l := newLogger(slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: &lv})))
	for _, c := range []struct {
		slog slog.Level
		kgo  kgo.LogLevel
	}{
		{slog.LevelDebug - 4, kgo.LogLevelDebug},
		{slog.LevelDebug, kgo.LogLevelInfo},
		{slog.LevelInfo, kgo.LogLevelWarn},
		{slog.LevelWarn, kgo.LogLevelWarn},
		{slog.LevelError, kgo.LogLevelError},
		{slog.LevelError + 1, kgo.LogLevelNone},
	} {
		lv.Set(c.slog)
		if have := l.Level(); have != c.kgo {
			t.Errorf("slog level %s: kgo level %s, want %s", c.slog, have, c.kgo)
		}
	}
	lv.Set(slog.LevelInfo)
	l.Log(kgo.LogLevelWarn, "broker went away", "broker", 3)
	if s := buf.String(); !strings.Contains(s, "level=WARN") || !strings.Contains(s, "broker=3") {
		t.Errorf("logged %q", s)
	}
}

func TestDialSeamIsUsed(t *testing.T) {
	asked := make(chan string, 8)
	c := testConfig()
	c.Dial = func(_ context.Context, _, addr string) (net.Conn, error) {
		asked <- addr
		return nil, net.ErrClosed
	}
	c.RetryTimeout = 100 * time.Millisecond
	cl := client(t, c.Direct())
	if err := cl.Ping(t.Context()); err == nil {
		t.Fatal("ping succeeded without a connection")
	}
	if addr := <-asked; addr != "127.0.0.1:1" {
		t.Errorf("dialled %s", addr)
	}
}
