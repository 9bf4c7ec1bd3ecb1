// Package group joins stream threads into a Kafka consumer group that places tasks and publishes who holds them.
//
// Each stream thread gives its group client a [Balancer] (classic cooperative protocol, protocol name [Protocol]). At
// every join it tells the leader about itself and what its process holds ([Member]); the leader places whole tasks
// (package assignor), lets go of nothing before its owner has let go, and sends each member its tasks with the epoch of
// the placement ([Assignment]). An [Observer], one per process, then reads the whole map back from the group with one
// DescribeGroups and publishes it to a router.Table.
//
//	obs, _ := group.NewObserver(group.ObserverConfig{...})
//	go obs.Run(ctx)                                        // the process
//	bal, _ := group.NewBalancer(group.BalancerConfig{Observer: obs, ...})
//	kgo.NewClient(kgo.Balancers(bal), ...)                 // each thread
//
// Standbys and warm-ups are told to one thread of each process (Assignment.Copies). A process asks for a rebalance itself, when
// a copy in Assignment.Awaited has caught up, and when Assignment.FollowUp says so.
//
// What it does not do: it starts no threads, opens no state, fences nobody. It tells the thread what to do, through
// BalancerConfig.OnAssignment, before the client's own revoke and assign callbacks run.
package group
