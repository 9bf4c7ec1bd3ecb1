// Package suppliers knows what is wrong with functions that make the processors of tasks.
package suppliers

import "reflect"

// Reason says what is wrong with a supplier; empty when nothing is. Two tasks that shared a processor would mix their state without a word, so
// it is called twice and must answer with two (upstream's ApiUtils.checkSupplier).
func Reason[T any](supplier func() T) string {
	if supplier == nil {
		return "has no supplier"
	}
	a, b := reflect.ValueOf(supplier()), reflect.ValueOf(supplier())
	switch {
	case !a.IsValid() || !b.IsValid():
		return "its supplier returned nil"
	case a.Kind() != reflect.Pointer || b.Kind() != reflect.Pointer:
		return "" // a value is copied
	case a.IsNil() || b.IsNil():
		return "its supplier returned nil"
	// All pointers to types of size 0 may be equal, and hold nothing that could be shared.
	case a.Type().Elem().Size() > 0 && a.Pointer() == b.Pointer():
		return "its supplier must return a new processor at each call"
	default:
		return ""
	}
}
