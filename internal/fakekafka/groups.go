package fakekafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Warden has the members of groups join anew that kfake has lost count of, where Kafka would end the rebalance with its timeout. kfake
// counts a member whose session ends while its sync waits as one that waits in a join, waits then for more joins than there are members,
// and begins the time of the rebalance anew with each join: members that repeat theirs keep it from ever ending. And one that was killed
// while it joined has no session that could time out, where Kafka begins one with the answer.
type Warden struct {
	Cluster *kfake.Cluster
	Client  *kgo.Client // of who watches
	// Groups are those to look at, which may change.
	Groups func(context.Context) []string
	// Members is how many a group has at most when it is well. 0: any number.
	Members int
	// Stuck is how long a rebalance may last, or a group have too many members, in one generation: longer than its rebalance timeout.
	Stuck time.Duration
	// Log is told of each group whose members are removed.
	Log func(format string, args ...any)
}

// generation of a group that is not well.
type generation struct {
	epoch int32
	since time.Time
}

// Run watches until ctx ends.
func (w Warden) Run(ctx context.Context) {
	look := time.NewTicker(w.Stuck / 15)
	defer look.Stop()
	unwell := make(map[string]generation)
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		for _, name := range w.Groups(ctx) {
			w.look(ctx, name, unwell)
		}
	}
}

func (w Warden) look(ctx context.Context, name string, unwell map[string]generation) {
	info := w.Cluster.GroupInfo(name)
	tooMany := info != nil && w.Members > 0 && len(info.Members) > w.Members
	if info == nil || info.State != "PreparingRebalance" && !tooMany {
		delete(unwell, name)
		return
	}
	if g, ok := unwell[name]; !ok || g.epoch != info.Epoch {
		unwell[name] = generation{info.Epoch, time.Now()}
		return
	} else if time.Since(g.since) < w.Stuck {
		return
	}
	w.Log("group %s does not come to rest in generation %d, its members are removed", name, info.Epoch)
	delete(unwell, name)
	for _, m := range info.Members {
		if err := Remove(ctx, w.Client, name, m.MemberID); err != nil {
			w.Log("%s is not removed: %v", m.MemberID, err)
		}
	}
}

// Remove takes a member out of a group. Whose member it was hears of it with its next request.
func Remove(ctx context.Context, cl *kgo.Client, group, member string) error {
	req, m := kmsg.NewPtrLeaveGroupRequest(), kmsg.NewLeaveGroupRequestMember()
	req.Group, req.MemberID, m.MemberID = group, member, member
	req.Members = append(req.Members, m)
	_, err := req.RequestWith(ctx, cl)
	return err
}
