// Package storetest is the contract of stores as tests. [KeyValue] is what a key-value store must do, whoever offers it;
// [Engine] what an engine must do; [Tasks] what a task's state must do over any engine; [Model] compares random
// histories, crashes included, with a map. Each test that takes over a known trap names it.
package storetest
