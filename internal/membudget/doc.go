// Package membudget divides one limit on memory among the parts of an instance. It is pure: it reads nothing but its
// arguments and decides nothing but numbers. Who uses a part keeps to it; package statemesh tells each its own.
package membudget
