// Package mutation plants faults in the program and checks that its tests find them: a simulation that passes is worth
// something only if it fails when what it guards is taken away. Each mutation changes one place of a copy of the module, runs
// the tests that are to find it, and is itself a failure when they pass, when the place is not there any more, or when the
// mutant does not compile.
//
//	make mutations
package mutation
