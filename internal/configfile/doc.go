// Package configfile turns a YAML file, the environment and --set flags into a [statemesh.Config]. One table lists
// every setting. Everything that is wrong is reported at once, with its place and what was probably meant: unknown and
// duplicate keys, wrong types, values out of range, and combinations that contradict each other.
//
// A value is looked for in this order: --set, environment, file, default.
package configfile
