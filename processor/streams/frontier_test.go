package streams

import "testing"

func TestFrontier(t *testing.T) {
	t.Parallel()
	var f frontier
	want := func(what, want string) {
		t.Helper()
		if got := string(f.from('t')); got != want {
			t.Errorf("%s: a scan begins at %q, want %q", what, got, want)
		}
	}
	want("nothing is known", "t")
	f.put([]byte("t5"))
	want("a row says nothing of those before it", "t")
	f.passed([]byte("t5"))
	want("taken out", "t5\x00")
	f.put([]byte("t7"))
	want("behind it", "t5\x00")
	f.put([]byte("t3"))
	want("before it", "t3")
	kept := f.from('t')
	f.passed([]byte("t9"))
	if string(kept) != "t3" {
		t.Errorf("the beginning of a scan was changed to %q", kept)
	}
}
