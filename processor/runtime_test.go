package processor

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestCountOneInstance(t *testing.T) {
	f := newFleet(t, false, 3)
	tr, rng := truth{}, rand.New(rand.NewPCG(1, 1))
	f.produce(tr, rng, 500, 50)
	in := f.start("a")
	in.waitRunning()
	f.produce(tr, rng, 500, 50)
	f.waitCaughtUp(20 * time.Second)
	f.check(tr, in)
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
}
