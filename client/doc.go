// Package client asks a statemesh application for its state. It learns which instance holds what, hashes keys as the
// producers do, and goes straight to the owner; any instance would answer, but a direct question costs one hop less.
//
//	c, err := client.New(client.Config{Seeds: []string{"10.0.0.1:7400", "10.0.0.2:7400"}, TLS: tlsConfig})
//	defer c.Close()
//	r, err := c.Get(ctx, "flights-per-carrier", []byte("UA"))
//	switch {
//	case errors.Is(err, store.ErrNotFound): // proven: the owner says that the key has no value
//	case err != nil:                        // not answered; errors.AsType[*store.NotReadyError] and friends say why
//	}
//
// # What it promises
//
// A key is absent only when a replica that serves its partition says so. A bound on the age holds when the answer is
// handed over, the time on the way included. A scan ends without an error only when it is complete, whatever moved in
// between: no row is lost or repeated. Everything handed out belongs to the caller.
//
// # Time, retries
//
// Every call ends with its context, or after [Config].Timeout when that has no deadline. Within that time the client asks
// again where it is safe and may help: elsewhere when an instance cannot be reached or says that the partition moved,
// later when the owner is not ready. It waits as long as the answer says, with jitter; all retries of a client share a
// budget, so a crowd of callers does not become a storm; and it does not ask others when an instance is overloaded. An
// error that comes back says what the last attempt said, of type [*CallError], which unwraps to the errors of package
// store.
//
// # Life
//
// New starts nothing and connects to nobody. The map is learned with the first call, and again when an answer shows that
// it is old. A program that stays calls [Client.Run] in a goroutine of its own, which follows the map as it changes, so
// that no call has to find out. A Client is safe for concurrent use.
package client
