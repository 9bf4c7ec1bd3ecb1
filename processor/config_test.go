package processor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func validConfig() Config {
	return Config{ApplicationID: "app", ProcessID: "p", Incarnation: "1", Kafka: KafkaConfig{Brokers: []string{"localhost:9092"}}}
}

// TestConfigReportsEverything: CF-07. Each wrong field is named, all at once.
func TestConfigReportsEverything(t *testing.T) {
	t.Parallel()
	if err := validConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range map[string]func(*Config){
		"ApplicationID":               func(c *Config) { c.ApplicationID = "a/b" },
		"ProcessID":                   func(c *Config) { c.ProcessID = "" },
		"Incarnation":                 func(c *Config) { c.Incarnation = "" },
		"Guarantee":                   func(c *Config) { c.Guarantee = "exactly_once" },
		"Kafka.Brokers":               func(c *Config) { c.Kafka.Brokers = nil },
		"GroupInstanceID":             func(c *Config) { c.GroupInstanceID = "static-1" },
		"CommitInterval":              func(c *Config) { c.CommitInterval = time.Microsecond },
		"HeartbeatInterval":           func(c *Config) { c.HeartbeatInterval = 16 * time.Second },
		"TransactionTimeout":          func(c *Config) { c.TransactionTimeout = 45 * time.Second },
		"NumStreamThreads":            func(c *Config) { c.NumStreamThreads = -1 },
		"BufferedRecordsPerPartition": func(c *Config) { c.BufferedRecordsPerPartition = -1 },
		"UncommittedMaxBytes":         func(c *Config) { c.UncommittedMaxBytes = -2 },
		"InputBufferMaxBytes":         func(c *Config) { c.InputBufferMaxBytes = -1 },
		"RestoreMaxBytes":             func(c *Config) { c.RestoreMaxBytes = 1 << 20 },
		"MaxTaskIdle":                 func(c *Config) { c.MaxTaskIdle = -time.Second },
		"OffsetReset":                 func(c *Config) { c.OffsetReset = 17 },
		"DeadLetterTopic":             func(c *Config) { c.DeserializationHandler = DeadLetter },
		"ReplicationFactor":           func(c *Config) { c.ReplicationFactor = -2 },
	} {
		c := validConfig()
		spoil(&c)
		err := c.Validate()
		if e, ok := errors.AsType[*ConfigError](err); !ok || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	c := Config{CommitInterval: time.Minute, GroupInstanceID: "x"}
	for _, field := range []string{"ApplicationID", "ProcessID", "Incarnation", "Kafka.Brokers", "TransactionTimeout", "GroupInstanceID"} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

func TestConfigDefaultsByGuarantee(t *testing.T) {
	t.Parallel()
	if c := validConfig().withDefaults(); c.Guarantee != ExactlyOnce || c.CommitInterval != 100*time.Millisecond {
		t.Errorf("%s every %s", c.Guarantee, c.CommitInterval)
	}
	c := validConfig()
	c.Guarantee = AtLeastOnce
	if c = c.withDefaults(); c.CommitInterval != 30*time.Second {
		t.Errorf("%s every %s", c.Guarantee, c.CommitInterval)
	}
	if err := c.Validate(); err != nil {
		t.Errorf("at_least_once with its own interval: %v", err)
	}
	c = validConfig()
	c.SessionTimeout = 6 * time.Second
	if err := c.Validate(); err != nil {
		t.Errorf("a short session alone: %v", err)
	}
}

// TestState walks the machine and those who wait for it.
func TestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		b := newStateBox(func(from, to State) { seen = append(seen, from.String()+">"+to.String()) })
		errs := make(chan error, 1)
		go func() { errs <- b.wait(t.Context(), Running) }()
		synctest.Wait()
		b.become(Running) // not from CREATED
		if b.get() != Created {
			t.Fatalf("state %s", b.get())
		}
		b.become(Rebalancing)
		b.become(Running)
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
		b.become(PendingShutdown)
		go func() { errs <- b.wait(t.Context(), Running) }()
		synctest.Wait()
		b.become(NotRunning)
		if err := <-errs; err == nil {
			t.Fatal("waited for a state that cannot come any more")
		}
		b.become(Failed)
		if got := strings.Join(seen, " "); got != "CREATED>REBALANCING REBALANCING>RUNNING RUNNING>PENDING_SHUTDOWN PENDING_SHUTDOWN>NOT_RUNNING" {
			t.Fatalf("changes %s", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := newStateBox(func(State, State) {}).wait(ctx, Running); !errors.Is(err, context.Canceled) {
			t.Fatalf("wait: %v", err)
		}
	})
}
