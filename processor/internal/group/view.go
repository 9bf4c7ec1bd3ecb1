package group

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// View is the whole map of one epoch: every member with what it said and what it was told.
type View struct {
	Epoch   router.Epoch
	Members []ViewMember
}

// ViewMember is one member of a [View].
type ViewMember struct {
	ID string
	// Member is zero when it could not be read; such a member has no tasks.
	Member     Member
	Assignment Assignment
}

// holds lists the tasks the member is owner of in the map: its own, and those it must let go of but that nobody else
// has yet.
func (m *ViewMember) holds(yield func(store.TaskID) bool) {
	for _, id := range m.Assignment.Active {
		if !yield(id) {
			return
		}
	}
	for _, r := range m.Assignment.Releasing {
		if !yield(r.Task) {
			return
		}
	}
}

var _ iter.Seq[store.TaskID] = (*ViewMember)(nil).holds

// Why a group's description is no map. The first two pass by themselves.
var (
	errNotStable = errors.New("group: not stable")
	errMixed     = errors.New("group: assignments of different epochs")
	errHoles     = errors.New("group: the map is not whole")
)

// readView reads a group's description. The map is whole when the group is stable, all assignments bear one epoch and
// every task is held once.
func readView(g *kmsg.DescribeGroupsResponseGroup) (View, error) {
	if g.State != "Stable" {
		return View{}, fmt.Errorf("%w: %s", errNotStable, g.State)
	}
	if g.Protocol != Protocol {
		return View{}, fmt.Errorf("%w: protocol %q, want %q", errHoles, g.Protocol, Protocol)
	}
	v := View{Members: make([]ViewMember, 0, len(g.Members))}
	for i := range g.Members {
		m, err := readViewMember(&g.Members[i])
		if err != nil {
			return View{}, err
		}
		v.Members = append(v.Members, m)
	}
	slices.SortFunc(v.Members, func(a, b ViewMember) int { return cmp.Compare(a.ID, b.ID) })
	return v, v.check()
}

func readViewMember(g *kmsg.DescribeGroupsResponseGroupMember) (ViewMember, error) {
	m := ViewMember{ID: g.MemberID}
	var assignment kmsg.ConsumerMemberAssignment
	if err := assignment.ReadFrom(g.MemberAssignment); err != nil {
		return m, fmt.Errorf("%w: assignment of %s: %w", errMixed, g.MemberID, err)
	}
	a, err := DecodeAssignment(assignment.UserData)
	if err != nil {
		return m, fmt.Errorf("%w: assignment of %s: %w", errMixed, g.MemberID, err)
	}
	m.Assignment = a
	var meta kmsg.ConsumerMemberMetadata
	if err := meta.ReadFrom(g.ProtocolMetadata); err == nil {
		if user, err := DecodeMember(meta.UserData); err == nil {
			m.Member = user
		}
	}
	return m, nil
}

// check sets the epoch and reports what keeps v from being a whole map.
func (v *View) check() error {
	if len(v.Members) == 0 {
		return fmt.Errorf("%w: no members", errHoles)
	}
	v.Epoch = v.Members[0].Assignment.Epoch
	tasks := v.Members[0].Assignment.Tasks
	holder := make(map[store.TaskID]string, tasks)
	for i := range v.Members {
		m := &v.Members[i]
		if m.Assignment.Epoch != v.Epoch || m.Assignment.Tasks != tasks {
			return fmt.Errorf("%w: %d at %s, %d at %s", errMixed, v.Epoch, v.Members[0].ID, m.Assignment.Epoch, m.ID)
		}
		for id := range m.holds {
			if m.Member.ProcessID == "" {
				return fmt.Errorf("%w: task %s is with %s, whose metadata cannot be read", errHoles, id, m.ID)
			}
			if other, ok := holder[id]; ok {
				return fmt.Errorf("%w: task %s is with %s and with %s", errHoles, id, other, m.ID)
			}
			holder[id] = m.ID
		}
	}
	if v.Epoch <= 0 {
		return fmt.Errorf("%w: epoch %d", errHoles, v.Epoch)
	}
	if len(holder) == 0 || len(holder) != tasks {
		return fmt.Errorf("%w: %d of %d tasks have an owner", errHoles, len(holder), tasks)
	}
	return nil
}

// data is the map by process, as callers know it. Members that the leader refused and that hold nothing are left out:
// nobody should be sent to them.
func (v *View) data(application string, stores []router.StoreInfo) router.Data {
	d := router.Data{Application: application, Epoch: v.Epoch, Stores: stores, Moving: make(map[store.TaskID]string)}
	at := make(map[string]int)
	for i := range v.Members {
		m := &v.Members[i]
		_, refused := m.Assignment.Refused()
		if m.Member.ProcessID == "" || refused && len(m.Assignment.Releasing) == 0 {
			continue
		}
		k, ok := at[m.Member.ProcessID]
		if !ok {
			k = len(d.Instances)
			at[m.Member.ProcessID] = k
			d.Instances = append(d.Instances, router.Instance{ID: m.Member.ProcessID})
		}
		in := &d.Instances[k]
		if in.Endpoint == "" || !refused {
			in.Incarnation, in.Endpoint, in.Rack = m.Member.Incarnation, m.Member.Endpoint, m.Member.Rack
		}
		in.Active = slices.AppendSeq(in.Active, m.holds)
		in.Standby = slices.Concat(in.Standby, m.Assignment.Standby, m.Assignment.Warmup, m.Assignment.Retained)
		for _, r := range m.Assignment.Releasing {
			if r.To != m.Member.ProcessID {
				d.Moving[r.Task] = r.To
			}
		}
	}
	for i := range d.Instances {
		in := &d.Instances[i]
		slices.SortFunc(in.Active, store.TaskID.Compare)
		slices.SortFunc(in.Standby, store.TaskID.Compare)
		in.Standby = slices.Compact(in.Standby)
		in.Standby = slices.DeleteFunc(in.Standby, func(id store.TaskID) bool { return contains(in.Active, id) })
	}
	slices.SortFunc(d.Instances, func(a, b router.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return d
}
