package streams

import (
	"bytes"
	"slices"
)

// frontier is where the rows begin of a store that an operator takes out from the front: none is before it. A scan that begins there passes over
// nothing that was taken out since the last commit. It is a hint in the memory of a task: the zero frontier is the beginning of the store.
type frontier []byte

// put takes note of a row that is written.
func (f *frontier) put(row []byte) {
	if bytes.Compare(row, *f) < 0 {
		*f = append((*f)[:0], row...)
	}
}

// passed takes note of a row that was taken out, as were all before it.
func (f *frontier) passed(row []byte) { *f = append(append((*f)[:0], row...), 0) }

// from is the beginning of a scan: the frontier, at least first. It is the caller's.
func (f *frontier) from(first ...byte) []byte {
	if bytes.Compare(*f, first) < 0 {
		return first
	}
	return slices.Clone([]byte(*f))
}
