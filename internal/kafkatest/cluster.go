package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/internal/childproc"
)

// Cluster is several brokers, each a process with a directory of its own, that are the quorum of controllers too. Its
// nodes are stopped, killed, paused and started one by one; its own methods may be called by any goroutine.
type Cluster struct{ nodes []*Broker }

// StartCluster formats and starts Config.Nodes brokers on free ports and returns when all serve. The caller stops them.
func StartCluster(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c, err := newNodes(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.each(func(b *Broker) error { return b.format(ctx) }); err != nil {
		return nil, err
	}
	// All at once: one alone is no quorum, and does not serve.
	if err := c.each(func(b *Broker) error { return b.Restart(ctx) }); err != nil {
		c.each(func(b *Broker) error { b.Kill(); return nil }) //nolint:errcheck // none
		return nil, err
	}
	return c, nil
}

// newNodes has a place and ports for each node.
func newNodes(cfg Config) (*Cluster, error) {
	per := 2 + len(cfg.Links)
	ports, err := childproc.FreePorts(cfg.Nodes * per)
	if err != nil {
		return nil, err
	}
	var addrs, voters []string
	for n, port := range ports {
		addrs = append(addrs, "127.0.0.1:"+strconv.Itoa(port))
		if n%per == 1 {
			voters = append(voters, fmt.Sprintf("%d@%s", 1+n/per, addrs[n]))
		}
	}
	c := &Cluster{}
	for n := range cfg.Nodes {
		own := addrs[n*per : (n+1)*per]
		b := &Broker{cfg: cfg, id: n + 1, dir: cfg.Dir, addr: own[0], control: own[1], voters: strings.Join(voters, ","), behind: own[2:]}
		if cfg.Nodes > 1 {
			b.dir = filepath.Join(cfg.Dir, fmt.Sprintf("node-%d", b.id))
		}
		c.nodes = append(c.nodes, b)
	}
	return c, nil
}

// replication is how a cluster of more than one keeps its topics.
func (c Config) replication() map[string]string {
	if c.Nodes == 1 {
		return map[string]string{}
	}
	factor, inSync := strconv.Itoa(min(3, c.Nodes)), strconv.Itoa(min(2, c.Nodes-1))
	return map[string]string{
		"default.replication.factor":                       factor,
		"offsets.topic.replication.factor":                 factor,
		"transaction.state.log.replication.factor":         factor,
		"share.coordinator.state.topic.replication.factor": factor,
		"min.insync.replicas":                              inSync,
		"transaction.state.log.min.isr":                    inSync,
		"share.coordinator.state.topic.min.isr":            inSync,
		"unclean.leader.election.enable":                   "false",
		// A node that says nothing for this long is fenced: it leads nothing, and nobody waits for its replicas. The 2 s of a
		// single node would fence those of a busy machine.
		"broker.session.timeout.ms":    "4000",
		"broker.heartbeat.interval.ms": "500",
		// Who comes back leads again what it led: each node goes on having something to lose.
		"leader.imbalance.check.interval.seconds": "10",
	}
}

// Nodes are the brokers; that at n has the id n+1.
func (c *Cluster) Nodes() []*Broker { return c.nodes }

// Brokers is what clients are configured with.
func (c *Cluster) Brokers() []string {
	var all []string
	for _, b := range c.nodes {
		all = append(all, b.addr)
	}
	return all
}

// Stop ends all nodes, in order where they can (see Broker.Stop).
func (c *Cluster) Stop() {
	_ = c.each(func(b *Broker) error { b.Stop(); return nil })
}

// InSync waits until every node, by its own view, knows all others and no partition that lacks a leader or a replica in
// sync. The error, at the end of ctx, says what was missing.
func (c *Cluster) InSync(ctx context.Context) error {
	clients := make([]*kgo.Client, 0, len(c.nodes))
	for _, b := range c.nodes {
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr))
		if err != nil {
			return err
		}
		defer cl.Close()
		clients = append(clients, cl)
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var missing error
		for n, cl := range clients {
			if missing = c.missing(ctx, cl); missing != nil {
				missing = fmt.Errorf("as node %d sees it: %w", n+1, missing)
				break
			}
		}
		if missing == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("kafkatest: not in sync: %w: %w", context.Cause(ctx), missing)
		}
	}
}

// Controller is the id of the node that leads the quorum of controllers; 0 when none does.
func (c *Cluster) Controller(ctx context.Context) (int, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers()...))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	req := kmsg.NewPtrDescribeQuorumRequest()
	part := kmsg.NewDescribeQuorumRequestTopicPartition()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic, topic.Partitions = "__cluster_metadata", append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return 0, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			return max(0, int(p.LeaderID)), kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return 0, errors.New("kafkatest: the quorum is not described")
}

// missing names what the node that cl asks misses, nil if nothing.
func (c *Cluster) missing(ctx context.Context, cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	kresp, err := cl.SeedBrokers()[0].Request(ctx, kmsg.NewPtrMetadataRequest()) // of all topics
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.MetadataResponse)
	if len(resp.Brokers) != len(c.nodes) {
		return fmt.Errorf("%d of %d nodes are there", len(resp.Brokers), len(c.nodes))
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
				return fmt.Errorf("%s-%d: leader %d, in sync %v of %v", *t.Topic, p.Partition, p.Leader, p.ISR, p.Replicas)
			}
		}
	}
	return nil
}

// each does something with all nodes at the same time.
func (c *Cluster) each(do func(b *Broker) error) error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for n, b := range c.nodes {
		wg.Go(func() { errs[n] = do(b) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
