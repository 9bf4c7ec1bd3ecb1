// Package chaos runs a fleet of real processes on a real Kafka and makes faults under a schedule that a seed fixes: kills of one,
// two or all, orderly ends, a rolling restart, an instance that gives everything away and takes it back, a spare instance that comes and goes, pauses past the session, lost and restored
// disks, kills, restarts and pauses of one of three brokers, and links that are silent, deaf, mute, slow, black-holed or refuse:
// those between an instance and all brokers or one, and those from peers and clients to an instance. Meanwhile a writer numbers its records, and readers
// of every sort record every answer; package history judges them. It is the lane `make chaos`; its test needs the build tag
// chaos.
//
// Beside the rules of package history it holds against the system:
//
//   - in a counter's changelog, as committed readers read it, every record of a row is higher than the one before;
//   - when it is calm again, every row is exactly what the acknowledged records make it, at every instance;
//   - no instance ends by itself.
package chaos
