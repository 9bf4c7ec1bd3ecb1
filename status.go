package statemesh

import (
	"context"
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/router"
)

// State of the instance.
func (i *Instance) State() State { return i.state.get() }

// WaitState returns nil once the instance is in state want, and an error when ctx ends or want cannot come any more.
func (i *Instance) WaitState(ctx context.Context, want State) error {
	return i.state.wait(ctx, want, func(s State) bool { return s == want })
}

// WaitOpen returns nil once state directory and listener are open, so that ID and Endpoint are known.
func (i *Instance) WaitOpen(ctx context.Context) error {
	return i.state.wait(ctx, Rebalancing, func(s State) bool { return s == Rebalancing || s == Serving })
}

// Endpoint is "host:port" as peers and clients dial this instance; empty before its listener is open.
func (i *Instance) Endpoint() string {
	if p := i.parts.Load(); p != nil {
		return p.endpoint
	}
	return ""
}

// ID of the instance in the map: it survives restarts with the same state directory. Empty before that is open.
func (i *Instance) ID() string {
	if p := i.parts.Load(); p != nil {
		return p.processID
	}
	return ""
}

// Map is the published metadata of the whole application as this instance knows it; nil before it is known.
func (i *Instance) Map() *router.Snapshot { return i.table.Load() }

// Tasks lists the tasks that this instance runs, with the progress of those that restore.
func (i *Instance) Tasks() []processor.TaskInfo {
	if p := i.parts.Load(); p != nil {
		return p.runtime.Tasks()
	}
	return nil
}

// Pause stops the processing; Resume goes on. Meanwhile the instance stays in the group and answers queries.
func (i *Instance) Pause() error {
	p := i.parts.Load()
	if p == nil {
		return errNotRunning
	}
	p.runtime.Pause()
	return nil
}

// Resume undoes [Instance.Pause].
func (i *Instance) Resume() error {
	p := i.parts.Load()
	if p == nil {
		return errNotRunning
	}
	p.runtime.Resume()
	return nil
}

var errNotRunning = errors.New("instance: not running")

// become moves the state and says so, once per change.
func (i *Instance) become(ctx context.Context, to State) {
	if i.state.become(to) {
		i.log.InfoContext(ctx, "instance state changed", "to", to.String())
	}
}

// observe follows the state of the runtime. Serving also needs the map: without it nothing that others hold is found.
func (i *Instance) observe(s processor.State) {
	to := Rebalancing
	if s == processor.Running && i.table.Load() != nil {
		to = Serving
	}
	if i.state.become(to) {
		i.log.Info("instance state changed", "to", to.String())
	}
}

// watchMap looks again once the first map is there.
func (i *Instance) watchMap(ctx context.Context) {
	for {
		snap, changed := i.table.Watch()
		if snap != nil {
			i.observe(i.parts.Load().runtime.State())
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// ready says why the instance should not be asked, nil when it may.
func (i *Instance) ready() error {
	switch s := i.state.get(); {
	case s != Rebalancing && s != Serving:
		return fmt.Errorf("instance state %s", s)
	case i.table.Load() == nil:
		return errors.New("the map of the application is not known yet")
	default:
		return nil
	}
}

// Status is what /statusz shows.
type Status struct {
	Application string       `json:"application"`
	Instance    string       `json:"instance"`
	Incarnation string       `json:"incarnation"`
	Endpoint    string       `json:"endpoint"`
	State       string       `json:"state"`
	Epoch       int64        `json:"epoch"`
	Tasks       []TaskStatus `json:"tasks"`
	Memory      []MemoryUse  `json:"memory"`
}

// TaskStatus is a task in a [Status].
type TaskStatus struct {
	Task     string `json:"task"`
	Serving  bool   `json:"serving"`
	Sequence int64  `json:"sequence"`
	// Restored and Total count changelog offsets of a restore.
	Restored int64 `json:"restored,omitempty"`
	Total    int64 `json:"total,omitempty"`
}

// Status describes the instance.
func (i *Instance) Status() Status {
	s := Status{Application: i.cfg.Processor.ApplicationID, State: i.State().String(), Tasks: []TaskStatus{}, Memory: i.Memory()}
	if p := i.parts.Load(); p != nil {
		s.Instance, s.Incarnation, s.Endpoint = p.processID, p.incarnation, p.endpoint
	}
	if m := i.Map(); m != nil {
		s.Epoch = int64(m.Epoch())
	}
	for _, t := range i.Tasks() {
		s.Tasks = append(s.Tasks, TaskStatus{
			Task: t.ID.String(), Serving: t.Serving, Sequence: int64(t.Checkpoint.Sequence), Restored: t.Restored, Total: t.Total,
		})
	}
	return s
}

func (i *Instance) status() any { return i.Status() }
