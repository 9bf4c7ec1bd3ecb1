package registry

import (
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/serde"
)

var (
	// ErrUnknownSchema reports a schema that the registry does not know. See [UnknownSchemaError].
	ErrUnknownSchema = errors.New("registry: unknown schema")
	// ErrIncompatible reports a schema that does not fit. See [IncompatibleError].
	ErrIncompatible = errors.New("registry: incompatible schema")
)

// UnknownSchemaError names what was asked for: the id in bytes that were read, or the subject of a value to be written.
type UnknownSchemaError struct {
	ID      int    // 0 when a value was to be written
	Subject string // empty when bytes were read
}

func (e *UnknownSchemaError) Error() string {
	if e.Subject == "" {
		return fmt.Sprintf("registry: schema %d is unknown", e.ID)
	}
	return fmt.Sprintf("registry: the schema is not registered under subject %s, and registering is not switched on", e.Subject)
}

// Is matches ErrUnknownSchema, and serde.ErrDecode or serde.ErrEncode.
func (e *UnknownSchemaError) Is(target error) bool {
	return target == ErrUnknownSchema || target == about(e.Subject)
}

// IncompatibleError says what does not fit: the schema of bytes that were read, by id, to what they are read as; or the
// schema of a value to be written to those of its subject.
type IncompatibleError struct {
	ID      int    // 0 when a value was to be written
	Subject string // empty when bytes were read
	Reason  string
}

func (e *IncompatibleError) Error() string {
	if e.Subject == "" {
		return fmt.Sprintf("registry: schema %d is incompatible: %s", e.ID, e.Reason)
	}
	return fmt.Sprintf("registry: the schema is incompatible with subject %s: %s", e.Subject, e.Reason)
}

// Is matches ErrIncompatible, and serde.ErrDecode or serde.ErrEncode.
func (e *IncompatibleError) Is(target error) bool {
	return target == ErrIncompatible || target == about(e.Subject)
}

// about says whether bytes or a value are at fault.
func about(subject string) error {
	if subject == "" {
		return serde.ErrDecode
	}
	return serde.ErrEncode
}

// UnavailableError says that the registry did not answer the question.
type UnavailableError struct {
	// What was asked for, such as "schema 7" or "subject flights-value".
	What string
	Err  error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("registry: %s: not answered: %v", e.What, e.Err)
}

// Is matches serde.ErrUnavailable.
func (e *UnavailableError) Is(target error) bool { return target == serde.ErrUnavailable }

// Unwrap returns Err.
func (e *UnavailableError) Unwrap() error { return e.Err }
