package configfile

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/internal/nearest"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
)

var update = flag.Bool("update", false, "rewrite the expected texts in testdata")

// CF-02, CF-07: every file in testdata, and everything that is said about it.
func TestProblems(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			src, err := ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			src.Path = filepath.Base(path)
			got := "valid\n"
			if _, err := Load(src); err != nil {
				got = err.Error() + "\n"
			}
			golden := strings.TrimSuffix(path, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got, -update accepts:\n%s", diff)
			}
		})
	}
}

func TestValuesArrive(t *testing.T) {
	t.Parallel()
	src, err := ReadFile("testdata/flights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Load(src)
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	for name, pair := range map[string][2]any{
		"list":              {c.Processor.Kafka.Brokers, []string{"kafka-1:9092", "kafka-2:9092"}},
		"bare milliseconds": {c.Processor.CommitInterval, 250 * time.Millisecond},
		"Go duration":       {c.Processor.SessionTimeout, 10 * time.Second},
		"size":              {c.Processor.UncommittedMaxBytes, int64(32 << 20)},
		"nested keys":       {*c.Processor.Kafka.SASL, processor.KafkaSASL{Mechanism: "SCRAM-SHA-256", User: "mesh", Password: "123"}},
		"CA-03 0 is off":    {c.CacheTTL < 0 && c.CacheNegativeTTL < 0, true},
		"one key":           {c.Views[0].Key, []string{"dest"}},
		"view":              {c.Views[1].Type, views.Latest},
		"default":           {c.Processor.TaskTimeout, time.Duration(0)},
	} {
		if diff := cmp.Diff(pair[1], pair[0]); diff != "" {
			t.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
}

func TestOrderOfSources(t *testing.T) {
	t.Parallel()
	src := func(file string) Source {
		return Source{Path: "f", Data: []byte(file + "\nstate.dir: d\nbootstrap.servers: b:1\nviews: [{name: v, topic: t, format: json, type: table}]")}
	}
	s := src("application.id: file")
	s.Env = []string{"STATEMESH_APPLICATION_ID=env", "STATEMESH_ADDR=elsewhere:1", "HOME=/"}
	l, err := Load(s)
	if err != nil || l.Config.Processor.ApplicationID != "env" {
		t.Errorf("file and environment: %v, %v; want env", l, err)
	}
	s.Set = []string{"application.id=flag"}
	l, err = Load(s)
	if err != nil || l.Config.Processor.ApplicationID != "flag" {
		t.Errorf("file, environment and flag: %v, %v; want flag", l, err)
	}
}

// CF-02 in the environment and on the command line.
func TestMisspeltOverrides(t *testing.T) {
	t.Parallel()
	_, err := Load(Source{
		Env: []string{"STATEMESH_COMIT_INTERVAL_MS=1", "STATEMESH_NUM_STREAM_THREADS=x"},
		Set: []string{"num.streams.threads=3", "listen", "log.level=lots"},
	})
	for _, want := range []string{
		"environment STATEMESH_COMIT_INTERVAL_MS: no such setting; did you mean STATEMESH_COMMIT_INTERVAL_MS?",
		`environment STATEMESH_NUM_STREAM_THREADS: num.stream.threads: "x" is no whole number`,
		"--set num.streams.threads: unknown key num.streams.threads; did you mean num.stream.threads?",
		"--set listen: want key=value",
		`--set log.level: log.level: "lots" is not one of debug, info, warn, error`,
	} {
		if err == nil || !slices.Contains(strings.Split(err.Error(), "\n"), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
}

// CF-04: what does not fit is refused, not wrapped around.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	for _, set := range []string{
		"session.timeout.ms=9223372036854775807", "session.timeout.ms=25000h", "fetch.max.bytes=9999999999999GiB",
		"max.request.size=3GiB", "num.stream.threads=99999999999999999999",
	} {
		name, _, _ := strings.Cut(set, "=")
		if _, err := Load(Source{Set: []string{set}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v; want a problem that names it", set, err)
		}
	}
}

// The table states each default. Compare with what the configuration does.
func TestDefaultsAreTrue(t *testing.T) {
	t.Parallel()
	full := newDraft()
	full.cfg = statemesh.Config{}.WithDefaults()
	for _, s := range Settings() {
		if strings.HasPrefix(s.Default, "(") {
			continue // depends on something, said in words
		}
		if got := s.get(full); got != s.Default {
			t.Errorf("%s: the table says %q, the code does %q", s.Name, s.Default, got)
		}
	}
}

// Every field that a user may set has a key, or a reason not to.
func TestEveryFieldHasAKey(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]string{
		"Topology": "code", "Sinks": "postgres under relations", "Logger": "log.level, log.format", "Registerer": "code", "Listener": "code",
		"ProcessID": "the instance's", "Incarnation": "the instance's", "Endpoint": "application.server",
		"EpochFile": "the instance's", "Host": "the machine's", "Predecessors": "the instance's", "Peers": "the instance's", "Others": "the instance's", "GroupInstanceID": "refused", "Kafka.SASL": "sasl.*", "Kafka.TLS": "ssl.*", "Kafka.Dial": "code", "Kafka.Logger": "code",
	}
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for f := range typ.Fields() {
			name := prefix + f.Name
			if !f.IsExported() || elsewhere[name] != "" {
				continue
			}
			switch name {
			case "Processor":
				walk("", f.Type)
			case "Kafka", "TLS", "Limits", "Engine":
				walk(f.Name+".", f.Type)
			default:
				if fields[name] == "" && fields[f.Name] == "" {
					t.Errorf("%s has no key in the configuration file", name)
				}
			}
		}
	}
	walk("", reflect.TypeFor[statemesh.Config]())
	known := []string{viewsKey, topologyKey, "dead-letter", "fail", "continue"}
	for _, s := range Settings() {
		known = append(known, s.Name)
	}
	for f, name := range fields {
		if !slices.Contains(known, name) {
			t.Errorf("field %s is said to be %s, which is no setting", f, name)
		}
	}
}

// TestEngineOptionsOfAView: what the engine cannot do for one store is refused with the reason and the way out.
func TestEngineOptionsOfAView(t *testing.T) {
	t.Parallel()
	for key, setting := range map[string]string{
		"compression": "store.compression", "block_bytes": "store.block.bytes", "memtable": "store.memtable.bytes",
		"bloom_false_positive": "store.bloom.false.positive", "levels": "store.levels",
	} {
		data := "application.id: app\nstate.dir: s\nbootstrap.servers: [a:1]\nviews:\n- name: v\n  topic: t\n  format: json\n  type: table\n  " + key + ": 1\n"
		_, err := Load(Source{Path: "m.yaml", Data: []byte(data)})
		if err == nil || !strings.Contains(err.Error(), "share its databases") || !strings.Contains(err.Error(), setting+" for the instance") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"commit.interval.ms", "listen", "state.dir"}
	for name, want := range map[string]string{
		"comit.interval.ms": "commit.interval.ms", "LISTEN": "listen", "stat.edir": "state.dir", "zookeeper.connect": "",
	} {
		if got := nearest.Of(name, known); got != want {
			t.Errorf("nearest.Of(%q) = %q, want %q", name, got, want)
		}
	}
}
