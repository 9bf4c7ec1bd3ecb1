// Package postgrestest starts a real PostgreSQL for tests: what is installed, on a loopback port of its own, in a directory of its own. It can
// be stopped, killed and started again on the same directory.
//
// Where none is installed, tests are skipped, unless the environment variable POSTGRES_REQUIRED is set: .ci/run installs it and sets
// that. PostgreSQL refuses to run as root, so the tests of root run it as another user.
package postgrestest
