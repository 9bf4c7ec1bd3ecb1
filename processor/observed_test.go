package processor

import (
	"strconv"
	"testing"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
)

func TestObservedTimes(t *testing.T) {
	t.Parallel()
	observed := func(o *observedTimes, name string) *ObservedTime {
		t.Helper()
		at, err := o.of(name)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	var first observedTimes
	first.begin(nil, -1)
	a, b := observed(&first, "a"), observed(&first, "b")
	if a.Now() != Unobserved {
		t.Errorf("a begins at %d", a.Now())
	}
	a.Observe(7)
	if got := a.Observe(5); got != 7 {
		t.Errorf("time goes back to %d", got)
	}
	first.becomeCommitted()
	a.Observe(9)
	b.Observe(9)
	first.rollback()
	if a.Now() != 7 || b.Now() != Unobserved || observed(&first, "a") != a {
		t.Errorf("after a rollback: %d, %d", a.Now(), b.Now())
	}

	var next observedTimes // which is restored from the commit
	next.begin(commitmeta.Meta{StreamTime: 20, Observed: first.encode(20)}.Times(), 20)
	for name, want := range map[string]int64{"a": 7, "b": Unobserved, "new": Unobserved} {
		if got := observed(&next, name).Now(); got != want {
			t.Errorf("%s is at %d after a restart, want %d", name, got, want)
		}
	}
	var upgraded observedTimes
	upgraded.begin(nil, 20)
	if got := observed(&upgraded, "a").Now(); got != 20 {
		t.Errorf("after a version without times: %d, want the task's 20", got)
	}
	for i := range commitmeta.MaxTimes - 1 {
		observed(&upgraded, strconv.Itoa(i))
	}
	if _, err := upgraded.of("one more"); err == nil {
		t.Error("more times than the metadata can hold")
	}
}
