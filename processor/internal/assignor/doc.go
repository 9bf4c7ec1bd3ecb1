// Package assignor decides which member of the group runs which task. It is pure: [Assign] reads nothing but its
// arguments and gives the same answer to the same members in any order. No clock, no network, no Kafka.
//
// What it promises, for every shape and every set of members:
//
//   - each task of the shape is active on exactly one member;
//   - loads are even: no process and no member could be relieved by moving one task to another (for tasks of equal
//     weight and threads of equal capacity: counts differ by one at most), stateful tasks by themselves too;
//   - nothing moves without need: asked again about the placement it made, it returns that placement;
//   - a task that must move goes where its state already is, if that process has room;
//   - with [Options.Ends], a stateful task moves only to where its state has caught up, and all of the above is what the
//     fleet comes to when its warm-ups have;
//   - copies of a task are in different processes, apart in racks or tags as far as can be, even over the fleet, and none
//     that could answer is let go of before what replaces it can.
//
// The shape and the sticky, state-aware placement follow upstream's StreamsPartitionAssignor and HighAvailabilityTaskAssignor
// (KIP-441, KIP-708) in purpose, not in mechanism.
package assignor
