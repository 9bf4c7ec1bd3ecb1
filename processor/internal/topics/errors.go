package topics

import (
	"fmt"
	"strings"
)

// MissingError names every topic that should be there and is not.
type MissingError struct{ Topics []string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("topics not found: %s; create them, or correct their names in the topology", strings.Join(e.Topics, ", "))
}

// MismatchError reports an internal topic that is not what the application needs. Nothing was changed.
type MismatchError struct {
	Topic string
	// Setting is "partitions" or the name of a topic configuration.
	Setting    string
	Have, Want string
	// Fix says what an operator can do.
	Fix string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("topic %s: %s is %s, want %s; %s", e.Topic, e.Setting, e.Have, e.Want, e.Fix)
}

// LostError reports an internal topic that is gone although the application has run before. It is not created again,
// because an empty one would turn what is lost into a state that looks complete.
type LostError struct {
	Topic string
	// Reason says what proves that it was there.
	Reason string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("topic %s: not found, but the application has run before (%s). Either it was deleted, and its content is lost: "+
		"to rebuild the state from the inputs, stop all instances, reset the group's offsets to the earliest ones, remove the "+
		"state directories and start again; to go on from an instance that still holds the state, restore the topic from a backup first. "+
		"Or it belongs to a store that is new, which would lack everything that was read before: run the application under a new "+
		"application.id to build it from the start, or create the topic to have it begin now",
		e.Topic, e.Reason)
}

// RequestError reports what the brokers refused, with the operation and the topic.
type RequestError struct {
	Topic string
	// Operation is "describe", "create", "describe configuration" or "delete records".
	Operation string
	Err       error
}

func (e *RequestError) Error() string {
	return fmt.Sprintf("topic %s: %s: %v", e.Topic, e.Operation, e.Err)
}

// Unwrap returns the broker's error, a *kerr.Error for what it answered.
func (e *RequestError) Unwrap() error { return e.Err }
