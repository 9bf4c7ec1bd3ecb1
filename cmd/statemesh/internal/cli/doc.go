// Package cli is the command line: commands, flags, output and exit codes. [Run] is the whole program but the signals
// and the exit, so that tests can call it.
package cli
