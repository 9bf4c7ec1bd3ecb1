package storetest

import (
	"fmt"
	"testing"

	"github.com/statemesh/statemesh/store/engine"
)

// engineSize: a guess at the size of a key space is of its own rows, or 0 when nothing is known. It is no promise, so what is
// asked is that it says neither far too much nor anything of a space that is empty or gone.
func engineSize(t *testing.T, e engine.Engine) {
	a, b := openSpace(t, e, 0, "x"), openSpace(t, e, 1, "x")
	const n = 1000
	want := int64(0)
	kv := make(map[string]string)
	for i := range n {
		k, v := fmt.Sprintf("key-%04d", i), fmt.Sprintf("%0*d", i%50, i)
		kv[k], want = v, want+int64(len(k)+len(v))
	}
	move(t, e, EngineMove(a.ID, a.Stores["x"].ID, "1", kv))
	if rows, size := e.Size(a.ID); rows < 0 || rows > 2*n || size < 0 || size > 4*want || (rows == 0) != (size == 0) {
		t.Errorf("%d rows of %d bytes, there are %d of %d", rows, size, n, want)
	}
	if rows, size := e.Size(b.ID); rows != 0 || size != 0 {
		t.Errorf("an empty key space has %d rows of %d bytes", rows, size)
	}
	if err := e.Drop(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	if rows, size := e.Size(a.ID); rows != 0 || size != 0 {
		t.Errorf("a dropped key space has %d rows of %d bytes", rows, size)
	}
}
