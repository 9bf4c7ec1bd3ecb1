package accumulate

import (
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/processor/internal/decode"
)

// Why a record cannot be added or taken out: metric labels, so constants.
const (
	// ReasonType: a value has not the type that its function was planned with.
	ReasonType = "wrong type"
	// ReasonRange: a double that is infinite or no number, or an instant outside of the years 0 to 9999. Neither can be written.
	ReasonRange = decode.ReasonRange
	// ReasonArithmetic: a count or a sum beyond the range of its type.
	ReasonArithmetic = "arithmetic"
	// ReasonUTF8: a string that is no UTF-8 cannot be written.
	ReasonUTF8 = decode.ReasonUTF8
	// ReasonAbsent: more is to be taken out than was added.
	ReasonAbsent = "nothing to subtract"
)

// FunctionError is one thing that is wrong with a [Function]. [NewPlan] joins all that it finds.
type FunctionError struct {
	// Index of the function, from 0, and its name.
	Index  int
	Name   string
	Reason string
	// Hint says what to write instead; may be empty.
	Hint string
}

func (e *FunctionError) Error() string {
	text := fmt.Sprintf("accumulate: function %d (%s): %s", e.Index, e.Name, e.Reason)
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Error reports that a record cannot be added to a state, or taken out of it. The state is as it was. It holds nothing of the record:
// errors are logged, and records may hold what must not be.
type Error struct {
	// Column is the name of the function. Empty: it is about the record as a whole.
	Column string
	// Reason is one of the constants, a metric label.
	Reason string
}

func (e *Error) Error() string {
	if e.Column == "" {
		return "aggregate: " + e.Reason
	}
	return fmt.Sprintf("aggregate column %q: %s", e.Column, e.Reason)
}

// DropReason labels a record that the processing exception handler passes over.
func (e *Error) DropReason() string { return e.Reason }

// StateError reports bytes that are no state, or no result, of the plan that reads them: they are damaged, or of other functions.
type StateError struct {
	// Column is the name of the function at which reading ended. Empty: before the first.
	Column string
	Reason string
}

func (e *StateError) Error() string {
	if e.Column == "" {
		return "aggregate state: " + e.Reason
	}
	return fmt.Sprintf("aggregate state, column %q: %s", e.Column, e.Reason)
}

// What is wrong with the use of this package, not with a record.
var (
	// ErrNotReversible reports Subtract on a state whose plan is not [Plan.Reversible], or that was made by [Plan.DecodeResult].
	ErrNotReversible = errors.New("accumulate: nothing can be taken out of this state again")
	// ErrResult reports [Plan.DecodeResult] of a plan whose result is not its state.
	ErrResult = errors.New("accumulate: the result of these functions cannot be read back as their state")
	// ErrOtherPlan reports a state of another plan, or inputs for another number of functions.
	ErrOtherPlan = errors.New("accumulate: the state or the inputs belong to another plan")
)
