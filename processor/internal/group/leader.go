package group

import (
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/processor/internal/assignor"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// joined is one member of the generation being placed, as the leader reads it.
type joined struct {
	id       string
	bytes    int // of its join metadata
	meta     kmsg.ConsumerMemberMetadata
	member   Member // the zero Member when it could not be read
	problems []Problem
}

func (j *joined) refused() bool {
	return slices.ContainsFunc(j.problems, func(p Problem) bool { return p.Kind.Refuses() })
}

func (j *joined) complain(kind ProblemKind, format string, args ...any) {
	j.problems = append(j.problems, Problem{Kind: kind, Detail: fmt.Sprintf(format, args...)})
}

// readMembers decodes what the members sent. Whatever cannot be read becomes a problem of its member and leaves the
// others alone. A member id listed twice counts once.
func readMembers(members []kmsg.JoinGroupResponseMember, ix *index) []joined {
	list := make([]joined, 0, len(members))
	seen := make(map[string]bool, len(members))
	for i := range members {
		m := &members[i]
		if seen[m.MemberID] {
			continue
		}
		seen[m.MemberID] = true
		j := joined{id: m.MemberID, bytes: len(m.ProtocolMetadata)}
		if err := j.meta.ReadFrom(m.ProtocolMetadata); err != nil {
			j.meta = kmsg.NewConsumerMemberMetadata() // half of it may be filled in
			j.complain(UnreadableMember, "%v", err)
		} else if user, err := DecodeMember(j.meta.UserData); err != nil {
			j.complain(UnreadableMember, "%s", errText(err))
		} else {
			j.member = user
			j.check(ix)
		}
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b joined) int { return strings.Compare(a.id, b.id) })
	checkProcesses(list)
	return list
}

func (j *joined) check(ix *index) {
	if j.member.ProcessID == "" {
		j.complain(UnreadableMember, "no process id")
	}
	if j.member.ShapeHash != ix.hash {
		j.complain(OtherTopology, "it has %016x, the leader %016x", j.member.ShapeHash, ix.hash)
	}
	if err := checkEndpoint(j.member.Endpoint); err != nil {
		j.complain(BadEndpoint, "%v", err)
	}
}

// checkEndpoint refuses what no peer can dial (CF-01). A member without an endpoint answers no peer and says so.
func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil || host == "" || port == "" || port == "0" {
		return fmt.Errorf("%q: want host:port", endpoint)
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		return fmt.Errorf("%q: an unspecified address", endpoint)
	}
	return nil
}

// checkProcesses finds process ids and endpoints that two processes use. Of two processes with one id, the one that runs
// more goes on.
func checkProcesses(list []joined) {
	owned := make(map[[2]string]int) // by process id and incarnation
	first := make(map[string]*joined)
	for i := range list {
		j := &list[i]
		if j.refused() {
			continue
		}
		k := [2]string{j.member.ProcessID, j.member.Incarnation}
		owned[k]++ // a thread counts, too: more than nothing
		for _, t := range j.meta.OwnedPartitions {
			owned[k] += len(t.Partitions)
		}
		at := first[j.member.ProcessID]
		if at == nil {
			first[j.member.ProcessID] = j
		}
	}
	best := make(map[string]string) // process id -> incarnation
	for k, n := range owned {
		have, ok := best[k[0]]
		if m := owned[[2]string{k[0], have}]; !ok || n > m || n == m && k[1] < have {
			best[k[0]] = k[1]
		}
	}
	byEndpoint := make(map[string]*joined)
	for i := range list {
		j := &list[i]
		if j.refused() {
			continue
		}
		if in := best[j.member.ProcessID]; in != j.member.Incarnation {
			j.complain(DuplicateProcess, "%s is also incarnation %s", j.member.ProcessID, in)
			continue
		}
		other, ok := byEndpoint[j.member.Endpoint]
		switch {
		case j.member.Endpoint == "":
		case !ok:
			byEndpoint[j.member.Endpoint] = j
		case other.member.ProcessID != j.member.ProcessID:
			j.complain(DuplicateEndpoint, "%s is also that of process %s", j.member.Endpoint, other.member.ProcessID)
			if len(other.problems) == 0 {
				other.complain(DuplicateEndpoint, "%s is also that of process %s", j.member.Endpoint, j.member.ProcessID)
			}
		}
	}
}

// claims is who says that it runs what.
type claims struct {
	// owner of a task: the member that claims most of it in the newest generation; none when nobody does.
	owner []int32
	// by task: the members that claim some of it, and those that claim all of it in the newest generation. Usually one.
	any, all [][]int32
}

const nobody = int32(-1)

// readClaims weighs what the members say they own. A claim counts against older claims of the same partition only: a
// member that missed generations still claims what others run by now (RB-08, KIP-792). Partitions that the shape does
// not have are passed over.
func readClaims(list []joined, ix *index) claims {
	newest := make(map[store.TopicPartition]int32)
	for m := range list {
		for in := range list[m].owned(ix) {
			if g, ok := newest[in]; !ok || list[m].meta.Generation > g {
				newest[in] = list[m].meta.Generation
			}
		}
	}
	n := len(ix.shape.Tasks)
	c := claims{owner: make([]int32, n), any: make([][]int32, n), all: make([][]int32, n)}
	most := make([]int, n) // the most partitions of a task that any member claims in the newest generation
	for t := range c.owner {
		c.owner[t] = nobody
	}
	for m := range list {
		fresh := make(map[int32]int) // the same of this member
		for in, t := range list[m].owned(ix) {
			fresh[t] += 0
			if list[m].meta.Generation == newest[in] {
				fresh[t]++
			}
		}
		for t, k := range fresh {
			c.any[t] = append(c.any[t], int32(m))
			if k == len(ix.inputs(t)) {
				c.all[t] = append(c.all[t], int32(m))
			}
			if k > most[t] {
				most[t], c.owner[t] = k, int32(m)
			}
		}
	}
	return c
}

// owned lists what the member claims of the shape, each partition once, with its task.
func (j *joined) owned(ix *index) iter.Seq2[store.TopicPartition, int32] {
	return func(yield func(store.TopicPartition, int32) bool) {
		seen := make(map[store.TopicPartition]bool)
		for _, topic := range j.meta.OwnedPartitions {
			for _, p := range topic.Partitions {
				in := store.TopicPartition{Topic: topic.Topic, Partition: store.Partition(p)}
				t, ok := ix.byPartition[in]
				if !ok || seen[in] {
					continue
				}
				seen[in] = true
				if !yield(in, t) {
					return
				}
			}
		}
	}
}

// decide places the tasks and says what each member is told. It is pure: known are the maps the leader knows, newest
// first, for the owners that vanished. Standbys need no fences: they write nothing.
func decide(ix *index, list []joined, epoch router.Epoch, known []View, opts Options) ([]Assignment, assignor.Plan) {
	c := readClaims(list, ix)
	out := make([]Assignment, len(list))
	for m := range list {
		out[m] = Assignment{Epoch: epoch, Tasks: len(ix.shape.Tasks), Problems: slices.Clone(list[m].problems), Fence: list[m].member.Fencing}
	}
	p := place(ix, list, &c, opts)
	fences := newFences(list, known)
	for t, to := range p.target {
		if to == nobody {
			continue
		}
		id := ix.shape.Tasks[t].ID
		switch {
		case slices.Contains(c.all[t], to):
			out[to].Active = append(out[to].Active, id)
		case len(c.any[t]) == 0 || len(c.any[t]) == 1 && c.any[t][0] == to:
			out[to].Active = append(out[to].Active, id)
			out[to].Fence = append(out[to].Fence, fences.of(id)...)
		default: // somebody may still run it: first it lets go, then it goes there, all of it
			out[to].Incoming = append(out[to].Incoming, id)
			from := c.owner[t]
			out[from].Releasing = append(out[from].Releasing, Release{Task: id, To: list[to].member.ProcessID})
		}
	}
	p.tellCopies(ix, list, out, opts)
	joinAgain(out)
	for m := range out {
		out[m].Drains = list[m].member.Draining
		out[m].Fence = tidyTexts(out[m].Fence, list[m].member.TransactionalID)
	}
	return out, p.plan
}

// joinAgain has all join once more at once if anything is on its way, but who lets go of something: the client joins by itself
// when that is done. Without it the others would find out by a heartbeat, and what is on its way waits for them.
func joinAgain(out []Assignment) {
	if !slices.ContainsFunc(out, func(a Assignment) bool { return len(a.Releasing) > 0 }) {
		return
	}
	for m := range out {
		out[m].Again = len(out[m].Releasing) == 0
	}
}

// promises says whom the newest assignments promised a task to. Older ones are void: the members that got the newest
// were placed after them.
func promises(list []joined) map[store.TaskID]int32 {
	newest := router.Epoch(0)
	for m := range list {
		newest = max(newest, list[m].member.Last)
	}
	to := make(map[store.TaskID]int32)
	for m := range list {
		if list[m].member.Last != newest {
			continue
		}
		for _, id := range list[m].member.Incoming {
			if _, ok := to[id]; !ok {
				to[id] = int32(m)
			}
		}
	}
	return to
}

// fences knows the transactional ids of owners that are gone.
type fences struct {
	gone map[store.TaskID][]string
}

func newFences(list []joined, known []View) fences {
	here := make(map[string]bool, len(list))
	for m := range list {
		here[list[m].member.TransactionalID] = true
	}
	f := fences{gone: make(map[store.TaskID][]string)}
	for _, v := range known {
		for i := range v.Members {
			m := &v.Members[i]
			ids := slices.Clone(m.Assignment.Fence) // it may not have come to it
			if tx := m.Member.TransactionalID; tx != "" && !here[tx] {
				ids = append(ids, tx)
			}
			if len(ids) == 0 {
				continue
			}
			for id := range m.holds {
				f.gone[id] = append(f.gone[id], ids...)
			}
		}
	}
	return f
}

func (f *fences) of(id store.TaskID) []string { return f.gone[id] }

// tidyTexts sorts a list, each once, without own and without empty ones.
func tidyTexts(list []string, own string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(s string) bool { return s == "" || s == own })
}
