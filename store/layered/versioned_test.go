package layered_test

import (
	"testing"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
	"github.com/statemesh/statemesh/store/storetest"
)

func TestVersioned(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, inMemory bool, m moving) {
		t.Helper()
		storetest.Versioned(t, func(t *testing.T, spec store.Spec) storetest.VersionedSubject {
			spec.InMemory = inMemory
			o := openSegmented(t, spec, m)
			w, err := o.task.Versioned("s")
			if err != nil {
				t.Fatal(err)
			}
			var last *layered.Snapshot
			return storetest.VersionedSubject{
				Writer: w, Commit: o.commit, Expired: o.expired, OpenIterators: o.stores.OpenIterators,
				Close: func() { last.Close() },
				Reader: func() store.VersionedReader {
					last = o.snapshot(t)
					r, err := last.Versions("s")
					if err != nil {
						t.Fatal(err)
					}
					return r
				},
			}
		})
	})
}
