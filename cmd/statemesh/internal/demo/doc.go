// Package demo is the whole path on real data, checked: a broker and a fleet of instances as processes of this very
// binary, every flight that left New York in 2013, four views, a process killed while records flow, and every key of
// every view asked of every instance and compared with what one plain pass over the data says.
package demo
