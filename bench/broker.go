package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/statemesh/statemesh/internal/kafkatest"
)

// broker is a process of its own, so that its CPU does not count.
type broker struct {
	addrs []string
	kind  string
	stop  func()
}

// startBroker starts a real Kafka if its jars are there, else the trial broker of bin/statemesh.
func startBroker(ctx context.Context, dir string) (*broker, error) {
	data := filepath.Join(dir, "kafka")
	if err := os.Mkdir(data, 0o755); err != nil {
		return nil, err
	}
	br, err := kafkatest.Start(ctx, kafkatest.Config{Dir: data, Heap: "1g", Warm: true})
	if err == nil {
		return &broker{addrs: br.Brokers(), kind: "Apache Kafka, one node", stop: br.Stop}, nil
	}
	fmt.Fprintf(os.Stderr, "bench: %v; using the trial broker\n", err)
	return startTrial(ctx, filepath.Join(dir, "trial"))
}

func startTrial(ctx context.Context, dir string) (*broker, error) {
	const bin = "bin/statemesh"
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("%s: %w; make build makes it", bin, err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(20000))
	cmd := exec.CommandContext(context.WithoutCancel(ctx), bin, "broker", "--listen", addr, "--dir", dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-exited
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 400 {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return &broker{addrs: []string{addr}, kind: "trial broker", stop: stop}, conn.Close()
		}
		select {
		case <-exited:
			return nil, errors.New("the trial broker ended")
		case <-ctx.Done():
			stop()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
	stop()
	return nil, fmt.Errorf("the trial broker does not listen at %s", addr)
}
