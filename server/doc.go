// Package server answers queries over gRPC: the services of statemesh.v1, health, reflection, and an admin endpoint over
// HTTP. Any instance answers any key: out of its own stores, out of the remote cache, or by one hop to a replica.
//
// # What it needs
//
// [Deps]: the stores of the instance ([Stores]), connections to the others ([Peers]), the published metadata, the remote
// cache. It declares these interfaces; the package that joins the parts satisfies them. It never sees Kafka or an engine.
//
// # What it promises
//
//   - A key without a value is reported only by a replica that serves the key's partition and meets the caller's bound.
//   - A key is looked for only in the partition that it hashes to; a request that names another one is refused.
//   - A forwarded request is answered here or refused, never forwarded again. It is taken for one only from a peer whose
//     identity proves that it is one: see [TLS.MeshNames]. It has limits of its own, so it never waits behind requests
//     of clients.
//   - A bound on the age is checked right before the answer is sent.
//   - Every status has a reason and what is needed to act: see package wire.
//   - A scan is complete only when it says so: a partition that cannot be read is an error, never a hole.
//
// [New] starts nothing; [Server.Run] owns every goroutine and returns when all have ended.
package server
