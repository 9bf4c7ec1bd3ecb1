package statemesh_test

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestSmallMemory: an instance under a small limit answers right, accounts for what it uses within the shares, shows them, and
// sets Go's limit for as long as it runs. Not parallel: the limit is the process's.
func TestSmallMemory(t *testing.T) {
	if os.Getenv("GOMEMLIMIT") != "" || debug.SetMemoryLimit(-1) != math.MaxInt64 {
		t.Fatal("the test needs a process without a memory limit: unset GOMEMLIMIT")
	}
	b := startBroker(t, "in", 8)
	var keys []string
	for i := range 5000 {
		keys = append(keys, fmt.Sprintf("key-%04d", i%2500))
	}
	b.produce(t, "in", keys...)
	cfg := b.config(t)
	reg := prometheus.NewRegistry()
	cfg.Registerer = reg
	cfg.MemoryLimit = 256 << 20
	n := startNode(t, cfg)
	if limit := debug.SetMemoryLimit(-1); limit >= cfg.MemoryLimit || limit < cfg.MemoryLimit/2 {
		t.Errorf("Go's limit is %d of %d", limit, cfg.MemoryLimit)
	}
	for _, key := range []string{"key-0000", "key-2499"} {
		eventually(t, func() error { return wantCount(t, n, "count", key, 2) })
	}
	var sum int64
	used := make(map[string]int64)
	for _, part := range n.Memory() {
		sum += part.Bytes
		used[part.Name] = part.Used
		if part.Used > part.Bytes {
			t.Errorf("%s: %d in use of %d", part.Name, part.Used, part.Bytes)
		}
	}
	if sum > cfg.MemoryLimit || sum < cfg.MemoryLimit*3/4 {
		t.Errorf("the parts are %d, the limit is %d", sum, cfg.MemoryLimit)
	}
	if used["recent"] <= 0 || used["queries"] < 0 || used["memtables"] != -1 {
		t.Errorf("in use: %v; want recent commits, and what does not count not to claim anything", used)
	}
	if len(n.Status().Memory) != len(n.Memory()) {
		t.Error("the status does not show the memory")
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "statemesh_memory_") {
			shown += len(f.GetMetric())
		}
	}
	if shown <= len(used) {
		t.Errorf("%d metrics of %d parts", shown, len(used))
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		t.Errorf("Go's limit is %d after the end", limit)
	}
}
