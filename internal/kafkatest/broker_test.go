package kafkatest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigurationOfABroker(t *testing.T) {
	dir := t.TempDir()
	b := &Broker{
		id: 1, dir: dir, addr: "127.0.0.1:1234", control: "127.0.0.1:1235", voters: "1@127.0.0.1:1235",
		behind: []string{"127.0.0.1:1236"},
		cfg: Config{
			Dir: dir, Nodes: 1, Links: [][]string{{"127.0.0.1:9"}}, Properties: map[string]string{"num.partitions": "7", "log.cleaner.backoff.ms": "1"},
		},
	}
	if err := b.writeFiles(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(b.path("server.properties"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"\nnum.partitions=7\n", "\nlog.cleaner.backoff.ms=1\n", "\nlisteners=PLAINTEXT://127.0.0.1:1234,CONTROLLER://127.0.0.1:1235,LINK0://127.0.0.1:1236\n",
		"\nadvertised.listeners=PLAINTEXT://127.0.0.1:1234,LINK0://127.0.0.1:9\n",
		"\nnode.id=1\n", "\ncontroller.quorum.voters=1@127.0.0.1:1235\n", "\noffsets.topic.replication.factor=1\n",
		"\nlog.dirs=" + dir + "/data\n", "\ngroup.initial.rebalance.delay.ms=0\n",
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("%q is missing in\n%s", line, text)
		}
	}
	if n := strings.Count(string(text), "num.partitions=7") + strings.Count(string(text), "\nnum.partitions=1\n"); n != 1 {
		t.Errorf("num.partitions is set %d times", n)
	}
}

func TestStartNamesWhatIsMissing(t *testing.T) {
	if _, err := Start(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), "Dir") {
		t.Errorf("no directory: %v", err)
	}
	if _, err := Start(t.Context(), Config{Dir: t.TempDir(), Libs: libs(t), Nodes: 3}); err == nil || !strings.Contains(err.Error(), "StartCluster") {
		t.Errorf("one of three: %v", err)
	}
	short := Config{Dir: t.TempDir(), Libs: libs(t), Nodes: 3, Links: [][]string{{"a:1"}}}
	if _, err := StartCluster(t.Context(), short); err == nil || !strings.Contains(err.Error(), "Links[0]") {
		t.Errorf("a link to one of three: %v", err)
	}
	if _, err := Start(t.Context(), Config{Dir: t.TempDir(), Libs: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "make kafka-fetch") {
		t.Errorf("no jars: %v", err)
	}
}

func TestConfigurationOfACluster(t *testing.T) {
	c, err := Config{Dir: t.TempDir(), Libs: libs(t), Nodes: 3, Links: [][]string{{"a:1", "a:2", "a:3"}}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := newNodes(c)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for n, b := range nodes.nodes {
		if err := os.MkdirAll(b.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := b.writeFiles(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(b.path("server.properties"))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{
			fmt.Sprintf("\nnode.id=%d\n", n+1), fmt.Sprintf(",LINK0://a:%d\n", n+1), "\ncontroller.quorum.voters=" + b.voters + "\n",
			"\ndefault.replication.factor=3\n", "\noffsets.topic.replication.factor=3\n", "\ntransaction.state.log.min.isr=2\n",
			"\nmin.insync.replicas=2\n", "\nunclean.leader.election.enable=false\n",
		} {
			if !strings.Contains(string(text), line) {
				t.Errorf("%q is missing in\n%s", line, text)
			}
		}
		if !strings.Contains(b.voters, fmt.Sprintf("%d@%s", n+1, b.control)) {
			t.Errorf("node %d at %s is not among the voters %s", n+1, b.control, b.voters)
		}
		for _, at := range []string{b.dir, b.addr, b.control, b.Behind(0)} {
			if seen[at] {
				t.Errorf("%s is used twice", at)
			}
			seen[at] = true
		}
	}
}

// libs is a directory that passes for the jars.
func libs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kafka_0.jar"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
