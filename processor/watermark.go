package processor

import "sync"

// watermark wakes who waits for a task to come further: to a commit, to the end of a restore, or to the end of its stay.
// Raising it costs the stream thread nothing while nobody waits. The zero value is ready; safe for concurrent use.
type watermark struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next raise; nil while nobody waits
}

// changed returns a channel that the next raise closes. Take it before looking at what is waited for: what comes between
// the look and the wait is not missed then.
func (w *watermark) changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next == nil {
		w.next = make(chan struct{})
	}
	return w.next
}

// raise wakes all who wait.
func (w *watermark) raise() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next != nil {
		close(w.next)
		w.next = nil
	}
}
