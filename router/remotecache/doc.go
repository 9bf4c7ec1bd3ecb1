// Package remotecache keeps answers of other instances for a few seconds, so that a hot key of a far partition costs one
// hop per TTL and not one per request. It never answers what this instance could answer itself: the caller asks it only
// when [router.Decide] says Remote.
//
// # What it promises
//
// An entry, and the answer of a call that several requests share, serves only whom it satisfies: the age in the answer
// plus the time since its request was sent is within the caller's bound. It is kept only if owner and epoch at the start
// of the request still hold at its end, and serves only while that owner, in that incarnation, is the owner by the
// newest metadata. Such an answer is labelled [store.RoleCache] with its age. A caller that insists on the owner never
// gets one.
//
// # How to use it
//
//	c := remotecache.New(remotecache.Default(), table)     // starts nothing
//	g.Go(func() error { return c.Run(ctx) })                // frees what no longer serves
//	a, err := c.Get(ctx, key, want, func(ctx context.Context) (remotecache.Answer, error) { ... one hop ... })
//
// A nil *Cache, a TTL or a size that is not positive, and a bound that is not positive all mean: no cache. Everything an
// Answer holds belongs to who got it.
package remotecache
