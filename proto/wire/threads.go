package wire

import (
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
)

// FromThreads makes the list of the stream threads of instance by, of which there may be limit.
func FromThreads(threads []router.Thread, limit int, by string) *statemeshv1.ListThreadsResponse {
	m := &statemeshv1.ListThreadsResponse{Limit: int32(limit), AnsweredBy: by}
	for _, t := range threads {
		m.Threads = append(m.Threads, &statemeshv1.StreamThread{
			Name: t.Name, State: statemeshv1.ThreadState(t.State), Tasks: fromTasks(t.Tasks),
		})
	}
	return m
}

// ToThreads reads it.
func ToThreads(m *statemeshv1.ListThreadsResponse) (threads []router.Thread, limit int) {
	for _, t := range m.GetThreads() {
		thread := router.Thread{Name: t.GetName(), State: router.ThreadState(t.GetState()), Tasks: toTasks(t.GetTasks())}
		if t.GetState() < 0 || t.GetState() > statemeshv1.ThreadState(router.ThreadLeaving) {
			thread.State = router.ThreadUnknown
		}
		threads = append(threads, thread)
	}
	return threads, int(m.GetLimit())
}

// FromThreadRefusal translates why the number of threads was not changed; false when that is an error of the call.
func FromThreadRefusal(err error) (statemeshv1.ThreadRefusal, *statemeshv1.ThreadLimit, bool) {
	if err == nil {
		return statemeshv1.ThreadRefusal_THREAD_REFUSAL_UNSPECIFIED, nil, true
	}
	if e, ok := errors.AsType[*router.ThreadLimitError](err); ok {
		limit := &statemeshv1.ThreadLimit{Threads: int32(e.Threads), Limit: int32(e.Limit), MemoryLimit: e.MemoryLimit}
		return statemeshv1.ThreadRefusal_THREAD_REFUSAL_LIMIT, limit, true
	}
	switch {
	case errors.Is(err, router.ErrLastThread):
		return statemeshv1.ThreadRefusal_THREAD_REFUSAL_LAST, nil, true
	case errors.Is(err, router.ErrThreadLingers):
		return statemeshv1.ThreadRefusal_THREAD_REFUSAL_LINGERS, nil, true
	default:
		return statemeshv1.ThreadRefusal_THREAD_REFUSAL_UNSPECIFIED, nil, false
	}
}

// ToThreadRefusal reads it; nil when there was none.
func ToThreadRefusal(r statemeshv1.ThreadRefusal, limit *statemeshv1.ThreadLimit) error {
	switch r {
	case statemeshv1.ThreadRefusal_THREAD_REFUSAL_UNSPECIFIED:
		return nil
	case statemeshv1.ThreadRefusal_THREAD_REFUSAL_LIMIT:
		return &router.ThreadLimitError{Threads: int(limit.GetThreads()), Limit: int(limit.GetLimit()), MemoryLimit: limit.GetMemoryLimit()}
	case statemeshv1.ThreadRefusal_THREAD_REFUSAL_LAST:
		return router.ErrLastThread
	case statemeshv1.ThreadRefusal_THREAD_REFUSAL_LINGERS:
		return router.ErrThreadLingers
	default:
		return fmt.Errorf("refused for a reason that this version does not know (%d)", r)
	}
}
