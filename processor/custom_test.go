package processor

import (
	"errors"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/store"
)

// TestCustomStoreRefused: what cannot be a store of one's own says so when the topology is built.
func TestCustomStoreRefused(t *testing.T) {
	open := func(*Parts) (int, error) { return 0, nil }
	plain := store.Spec{Name: "a", Kind: store.KindKeyValue}
	for name, tc := range map[string]struct {
		store StoreBuilder
		want  string
	}{
		"no parts": {NewCustomStore(open), "at least one part"},
		"no open":  {NewCustomStore[int](nil, plain), "a function that opens it"},
		"nil":      {nil, "is nil"},
		"twice":    {NewCustomStore(open, plain, plain), `store "a": is declared twice`},
		"bad part": {NewCustomStore(open, store.Spec{Name: "a", Kind: store.KindWindow}), `store "a"`},
	} {
		top := NewTopology().AddSource("in", SourceOptions{}, "in").AddProcessor("p", func() Processor { return &counter{} }, "in")
		_, err := top.AddStore(tc.store, "p").Build("app")
		if _, ok := errors.AsType[*TopologyError](err); !ok || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
