// Package topics looks after topics: it says what the inputs are like, creates or verifies the internal topics
// (changelogs and repartition topics) with upstream's names and settings, and deletes consumed repartition records.
//
// [Describe] and [Ensure] are called at start and after changes of the topology, before anything is produced or
// restored. They start nothing. [Purger] runs for as long as the instance does.
//
// An internal topic is created only on a first start. Where anything proves that the application ran before (offsets
// in the group, a local checkpoint), a missing changelog is lost state, and Ensure refuses instead of making an empty
// one: see [Internal.MustExist].
package topics
