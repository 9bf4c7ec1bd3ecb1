package joined

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func TestErrors(t *testing.T) {
	t.Parallel()
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	wrapped := fmt.Errorf("of one: %w", errors.Join(a, b))
	for name, tt := range map[string]struct {
		err  error
		want []error
	}{
		"none":                               {nil, nil},
		"one":                                {a, []error{a}},
		"joined":                             {errors.Join(a, errors.Join(b, nil, c)), []error{a, b, c}},
		"a wrapped one has words of its own": {wrapped, []error{wrapped}},
	} {
		if have := Errors(tt.err); !slices.Equal(have, tt.want) {
			t.Errorf("%s: %v, want %v", name, have, tt.want)
		}
	}
}
