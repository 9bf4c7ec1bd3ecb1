package store

import "context"

// Sized is what a reader may also be.
type Sized interface {
	// ApproximateBytes estimates how many bytes the keys and values of its rows have together.
	ApproximateBytes(ctx context.Context) (int64, error)
}
