package processor

import (
	"sync"
	"testing"
)

// TestWatermark: a raise wakes all who asked before it, and none of those who ask after it.
func TestWatermark(t *testing.T) {
	t.Parallel()
	var w watermark
	w.raise() // nobody waits
	before := w.changed()
	select {
	case <-before:
		t.Fatal("woken by what came before")
	default:
	}
	var waiters sync.WaitGroup
	for range 10 {
		c := w.changed()
		waiters.Go(func() { <-c })
	}
	w.raise()
	waiters.Wait()
	<-before
	select {
	case <-w.changed():
		t.Fatal("woken by what came before")
	default:
	}
}

// TestWatermarkIdle: a commit that nobody waits for costs no allocation.
func TestWatermarkIdle(t *testing.T) {
	var w watermark
	if n := testing.AllocsPerRun(100, w.raise); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
