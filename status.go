package statemesh

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// Standbys lists the copies that this instance keeps of tasks that others run, with how far they are.
func (i *Instance) Standbys() []processor.StandbyInfo {
	if p := i.parts.Load(); p != nil {
		return p.runtime.Standbys()
	}
	return nil
}

// Holdings lists what this instance has of tasks, its own and copies of others', with the role and how far each is. Those of all
// instances are in [client.Client.Holdings].
func (i *Instance) Holdings() []router.Holding {
	if p := i.parts.Load(); p != nil {
		return p.runtime.Holdings()
	}
	return nil
}

// Sinks says how the sinks of this instance are; none before it runs.
func (i *Instance) Sinks() []SinkStatus {
	p := i.parts.Load()
	if p == nil {
		return nil
	}
	var all []SinkStatus
	for _, s := range p.sinks {
		st := s.Status()
		out := SinkStatus{
			Sink: s.name, Topic: s.topic, State: string(st.State), Since: st.Since, Failures: st.Failures, Partitions: []SinkPartition{},
		}
		if st.Err != nil {
			out.Error = st.Err.Error()
		}
		for _, partition := range st.Partitions {
			out.Partitions = append(out.Partitions, SinkPartition(partition))
		}
		all = append(all, out)
	}
	return all
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
	// Standbys are the copies kept of tasks that other instances run.
	Standbys []StandbyStatus `json:"standbys"`
	// Holdings are both, and what is left of tasks that ran here, each with its role and how far it is.
	Holdings []HoldingStatus `json:"holdings"`
	Memory   []MemoryUse     `json:"memory"`
	// Sinks are the databases that committed changes are written to. None of them makes the instance less ready.
	Sinks []SinkStatus `json:"sinks,omitempty"`
}

// SinkStatus is a sink in a [Status].
type SinkStatus struct {
	Sink  string `json:"sink"`
	Topic string `json:"topic"`
	// State is opening, writing, away (the database is tried again), failed (the sink is begun again after a pause) or idle.
	State string `json:"state"`
	// Error is why it is away or failed, Since since when.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Failures counts how often it has failed.
	Failures int `json:"failures,omitempty"`
	// Partitions that this instance writes.
	Partitions []SinkPartition `json:"partitions"`
}

// SinkPartition is a partition of a sink's topic in a [SinkStatus].
type SinkPartition struct {
	Partition int32 `json:"partition"`
	// Lag counts offsets that are left to apply; -1 before it is known.
	Lag int64 `json:"lag"`
}

// HoldingStatus is what the instance has of one task in a [Status]. It has the names that `statemesh copies -o json` has.
type HoldingStatus struct {
	Task  string `json:"task"`
	Role  string `json:"role"`  // owner, standby, warm-up, retained
	State string `json:"state"` // starting, restoring, copying, serving, following, resting
	// Restored and Total count changelog offsets of a restore, or rows while the copy of another instance is taken.
	Restored int64 `json:"restored,omitempty"`
	Total    int64 `json:"total,omitempty"`
	// From is the instance whose copy is taken, Bytes how much has come of its keys and values.
	From  string `json:"from,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	// LeftMS estimates how long the rest of a restore takes, in milliseconds; 0 when unknown.
	LeftMS int64 `json:"left_ms,omitempty"`
	// Lag counts changelog offsets that are known and not applied; -1 when the ends are unknown.
	Lag int64 `json:"lag"`
	// AgeMS is the proven upper limit of how old the copy is, in milliseconds; -1 when nothing is proven.
	AgeMS int64 `json:"age_ms"`
}

// StandbyStatus is a copy in a [Status].
type StandbyStatus struct {
	Task string `json:"task"`
	// Warmup: the task comes here once the copy has caught up.
	Warmup bool `json:"warmup,omitempty"`
	// Ready: the copy answers reads within their bound.
	Ready bool `json:"ready"`
	// Lag counts changelog offsets that are known and not applied yet.
	Lag int64 `json:"lag"`
	// AgeMS is the proven upper limit of how old the copy is, in milliseconds; -1 when nothing is proven.
	AgeMS int64 `json:"age_ms"`
}

// TaskStatus is a task in a [Status].
type TaskStatus struct {
	Task     string `json:"task"`
	Serving  bool   `json:"serving"`
	Sequence int64  `json:"sequence"`
	// Restored and Total count changelog offsets of a restore, or rows while the copy of another instance is taken.
	Restored int64 `json:"restored,omitempty"`
	Total    int64 `json:"total,omitempty"`
}

// Status describes the instance.
func (i *Instance) Status() Status {
	s := Status{
		Application: i.cfg.Processor.ApplicationID, State: i.State().String(), Tasks: []TaskStatus{}, Standbys: []StandbyStatus{},
		Holdings: []HoldingStatus{}, Memory: i.Memory(), Sinks: i.Sinks(),
	}
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
	for _, c := range i.Standbys() {
		s.Standbys = append(s.Standbys, StandbyStatus{Task: c.ID.String(), Warmup: c.Warmup, Ready: c.Exact, Lag: c.Lag, AgeMS: millis(c.Age)})
	}
	for _, h := range i.Holdings() {
		s.Holdings = append(s.Holdings, HoldingStatus{
			Task: h.Task.String(), Role: h.Role.String(), State: h.State.String(), Restored: h.Restored, Total: h.Total,
			From: h.From, Bytes: h.Bytes, LeftMS: h.Left.Milliseconds(), Lag: h.Lag, AgeMS: millis(h.Age),
		})
	}
	return s
}

// millis of an age; -1 when nothing is proven.
func millis(age time.Duration) int64 {
	if age < 0 {
		return -1
	}
	return age.Milliseconds()
}

func (i *Instance) status() any { return i.Status() }
