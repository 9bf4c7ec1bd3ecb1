// Package hostproc tells processes of one machine apart, and says whether one of them is gone. A process is named by the
// machine's boot, its PID namespace, its PID and when it started, so that neither a later process with the same PID nor one
// of another machine or container is taken for it.
//
// It works on Linux. Elsewhere, and where the system does not tell, identities are zero and nothing is known of others.
package hostproc
