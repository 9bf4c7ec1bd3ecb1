package processor

import "testing"

// TestInputShareIsNeverNothing: a thread without a share would take its empty buffers for full ones, and never fetch.
func TestInputShareIsNeverNothing(t *testing.T) {
	t.Parallel()
	th := &thread{rt: &Runtime{cfg: Config{InputBufferMaxBytes: 3, NumStreamThreads: 4, MaxPollRecords: 10}}}
	if th.supplied() {
		t.Error("a thread that has nothing says that it has enough")
	}
}
