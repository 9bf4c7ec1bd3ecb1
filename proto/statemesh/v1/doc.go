// Package statemeshv1 is the generated Go of the public API, package statemesh.v1 of the .proto files beside it. What
// the messages mean is written there; proto/wire translates them to and from the domain.
package statemeshv1
