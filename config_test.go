package statemesh

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/internal/membudget"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/store/badgerdb"
)

func valid() Config {
	return Config{
		Processor: processor.Config{ApplicationID: "app", Kafka: processor.KafkaConfig{Brokers: []string{"localhost:9092"}}},
		Views:     []views.View{{Name: "v", Topic: "t", Format: views.JSON, Type: views.Table}},
		StateDir:  "state",
	}
}

func TestValidateZeroIsDefault(t *testing.T) {
	t.Parallel()
	if err := valid().Validate(); err != nil {
		t.Error(err)
	}
	if err := valid().WithDefaults().Validate(); err != nil {
		t.Errorf("the defaults themselves: %v", err)
	}
}

// CF-07: each contradiction is found, and its settings are named.
func TestValidateFinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"nothing to keep":    {func(c *Config) { c.Views = nil }, []string{"Views"}},
		"two topologies":     {func(c *Config) { c.Topology = processor.NewTopology() }, []string{"Topology"}},
		"no directory":       {func(c *Config) { c.StateDir = "" }, []string{"StateDir"}},
		"bad view":           {func(c *Config) { c.Views[0].Format = "xml" }, []string{"views[0].format"}},
		"no brokers":         {func(c *Config) { c.Processor.Kafka.Brokers = nil }, []string{"Kafka.Brokers"}},
		"bad broker":         {func(c *Config) { c.Processor.Kafka.Brokers = []string{"x"} }, []string{`"x"`}},
		"CF-01 wildcard":     {func(c *Config) { c.Listen, c.TLS.AllowPlaintext = "0.0.0.0:7070", true }, []string{"Advertise"}},
		"CF-01 wildcard v6":  {func(c *Config) { c.Listen, c.TLS.AllowPlaintext = "[::]:7070", true }, []string{"Advertise"}},
		"CF-01 no host":      {func(c *Config) { c.Listen, c.TLS.AllowPlaintext = ":0", true }, []string{"Advertise"}},
		"CF-01 advertised":   {func(c *Config) { c.Advertise = "0.0.0.0:7070" }, []string{"Advertise"}},
		"plain text":         {func(c *Config) { c.Listen = "10.0.0.1:7070" }, []string{"Listen", "TLS.AllowPlaintext"}},
		"half of TLS":        {func(c *Config) { c.TLS.CertFile = "c" }, []string{"TLS.KeyFile", "TLS.CAFile", "TLS.MeshNames"}},
		"TLS and plain text": {func(c *Config) { c.TLS.CertFile, c.TLS.AllowPlaintext = "c", true }, []string{"TLS.AllowPlaintext"}},
		"not ours":           {func(c *Config) { c.Processor.ProcessID = "me" }, []string{"Processor.ProcessID"}},
		"cache":              {func(c *Config) { c.CacheTTL, c.CacheNegativeTTL = 1, 2 }, []string{"CacheNegativeTTL", "CacheTTL"}},
		"timeouts":           {func(c *Config) { c.Processor.TransactionTimeout = time.Minute }, []string{"TransactionTimeout", "SessionTimeout"}},
		"static membership":  {func(c *Config) { c.Processor.GroupInstanceID = "a" }, []string{"GroupInstanceID"}},
		"negative limits":    {func(c *Config) { c.Limits.Scans = -1 }, []string{"Limits.Scans"}},
		"everything":         {func(c *Config) { *c = Config{} }, []string{"StateDir", "Views", "ApplicationID", "Kafka.Brokers"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := valid()
			c.change(&cfg)
			_, err := New(cfg)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwant it to name %s", err, want)
				}
			}
		})
	}
}

// CF-01: what is published is never a wildcard and never port 0.
func TestAdvertised(t *testing.T) {
	t.Parallel()
	bound := &net.TCPAddr{IP: net.IPv4zero, Port: 41234}
	for _, c := range []struct{ listen, advertise, want string }{
		{"127.0.0.1:7070", "", "127.0.0.1:41234"},
		{"127.0.0.1:0", "", "127.0.0.1:41234"},
		{"localhost:0", "", "localhost:41234"},
		{"[::1]:0", "", "[::1]:41234"},
		{"0.0.0.0:0", "mesh-1:0", "mesh-1:41234"},
		{"0.0.0.0:7070", "mesh-1:443", "mesh-1:443"},
		{":7070", "[fe80::1]:0", "[fe80::1]:41234"},
	} {
		if got, err := advertised(c.listen, c.advertise, bound); err != nil || got != c.want {
			t.Errorf("listen %s, advertise %q: %q, %v; want %s", c.listen, c.advertise, got, err, c.want)
		}
	}
	for _, c := range []struct{ listen, advertise string }{
		{"0.0.0.0:7070", ""},
		{"[::]:0", ""},
		{":0", ""},
		{"7070", ""},
		{"a:b", ""},
		{"a:70000", ""},
		{"a:1", "0.0.0.0:1"},
		{"a:1", ":1"},
		{"a:1", "b"},
	} {
		got, err := advertised(c.listen, c.advertise, bound)
		if _, ok := errors.AsType[*FieldError](err); !ok {
			t.Errorf("listen %s, advertise %q: %q, %v; want it refused", c.listen, c.advertise, got, err)
		}
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]net.Addr{
		"127.0.0.1:5": &net.TCPAddr{IP: net.IPv4zero, Port: 5},
		"[::1]:5":     &net.TCPAddr{IP: net.IPv6unspecified, Port: 5},
		"10.0.0.1:5":  &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5},
	} {
		if got := reachable(a); got != want {
			t.Errorf("%s: %s, want %s", a, got, want)
		}
	}
}

// CF-06: the engine takes every record that may be produced, up to what it takes at all, unless its memtables were set.
func TestRecordLimits(t *testing.T) {
	t.Parallel()
	for _, size := range []int32{0, 100_000, 1_000_012, 5 << 20} {
		for _, databases := range []int{0, 1} {
			c := valid()
			c.Processor.Kafka.MaxRecordBytes, c.Engine.Databases = size, databases
			record := recordLimit(c.Processor.Kafka)
			if size > 0 && record > int64(size) {
				t.Errorf("records of %d: %d", size, record)
			}
			_, c, err := c.memory(membudget.Default{Limit: 400 << 20})
			if err != nil {
				t.Fatal(err)
			}
			engine := badgerdb.Options{MemTableBytes: c.Engine.MemtableBytes}.Limits().RecordBytes
			if least := min(record, 1<<20-8<<10); engine < least {
				t.Errorf("records of %d: memtables of %d take %d, want %d", size, c.Engine.MemtableBytes, engine, least)
			}
		}
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	all := []State{Created, Starting, Rebalancing, Serving, Closing, Leaving, Stopped, Failed}
	var back []State
	for _, from := range all {
		if strings.HasPrefix(from.String(), "STATE_") {
			t.Errorf("state %d has no name", from)
		}
		for _, to := range all {
			if from.may(to) && to <= from {
				back = append(back, from, to)
			}
		}
		if from >= Stopped && slices.ContainsFunc(all, from.may) {
			t.Errorf("something follows %s", from)
		}
	}
	if !slices.Equal(back, []State{Serving, Rebalancing}) {
		t.Errorf("ways back: %v, want only from SERVING to REBALANCING", back)
	}
	if State(99).String() != "STATE_99" {
		t.Error(State(99))
	}
}
