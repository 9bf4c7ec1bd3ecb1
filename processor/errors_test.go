package processor

import (
	"errors"
	"fmt"
	"testing"
)

type labelled struct{}

func (labelled) Error() string      { return "what happened" }
func (labelled) DropReason() string { return "why" }

// TestProcessingReason: what is counted of a record that the processing handler drops, and written to its dead letter.
func TestProcessingReason(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.New("plain"), "processing error"},
		{fmt.Errorf("node n: %w", labelled{}), "why"},
	} {
		if got := processingReason(tt.err); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
		if got := errorKind(tt.err); got != tt.want {
			t.Errorf("%v: kind %q, want %q", tt.err, got, tt.want)
		}
	}
	if got := errorKind(&DeserializationError{Reason: "invalid json", Err: labelled{}}); got != "invalid json" {
		t.Errorf("a record that cannot be decoded: %q", got)
	}
}
