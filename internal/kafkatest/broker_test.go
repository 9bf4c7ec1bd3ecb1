package kafkatest

import (
	"os"
	"strings"
	"testing"
)

func TestConfigurationOfABroker(t *testing.T) {
	dir := t.TempDir()
	b := &Broker{
		addr: "127.0.0.1:1234", behind: []string{"127.0.0.1:1236"},
		cfg: Config{
			Dir: dir, Links: []string{"127.0.0.1:9"}, Properties: map[string]string{"num.partitions": "7", "log.cleaner.backoff.ms": "1"},
		},
	}
	if err := b.writeFiles(1235); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(b.path("server.properties"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"\nnum.partitions=7\n", "\nlog.cleaner.backoff.ms=1\n", "\nlisteners=PLAINTEXT://127.0.0.1:1234,CONTROLLER://127.0.0.1:1235,LINK0://127.0.0.1:1236\n",
		"\nadvertised.listeners=PLAINTEXT://127.0.0.1:1234,LINK0://127.0.0.1:9\n",
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
	if _, err := Start(t.Context(), Config{Dir: t.TempDir(), Libs: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "make kafka-fetch") {
		t.Errorf("no jars: %v", err)
	}
}
