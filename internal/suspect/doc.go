// Package suspect finds out which instances of the mesh have died, fast and with proof.
//
// A connection that breaks, or an answer that does not come, makes an instance suspect: reads ask it last. To be removed from
// the group it takes proof that this incarnation of it will never do anything again. Either its process, which was once seen to
// run on this machine, is gone. Or its listener, which was once seen open, refuses connections: to this process, twice, and to a
// majority of the instances, two at least. Two survivors must agree; one alone on another machine has no proof, and the
// session timeout decides. Any sign of life ends the procedure: an answer, a process that runs, a peer that has seen it, a newer map
// with this incarnation in it. An incarnation is evicted once, and of all not more than ten a minute.
//
// [Machine] decides, without a clock or a network; [Runner] looks, asks, and does what was decided.
package suspect
