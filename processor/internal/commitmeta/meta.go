package commitmeta

import (
	"strconv"
	"strings"

	"github.com/statemesh/statemesh/store"
)

const prefix = "sm1"

// Meta travels with every offset that a task commits. The highest sequence over a task's inputs is its last commit.
type Meta struct {
	Sequence store.Sequence
	// StreamTime of the task at the commit, Unix milliseconds; -1 when no record was seen.
	StreamTime int64
	// TransactionalID that wrote the commit; empty under at_least_once.
	TransactionalID string
}

// Encode returns the metadata string: "sm1:<sequence>:<stream time>:<transactional id>".
func (m Meta) Encode() string {
	return prefix + ":" + strconv.FormatInt(int64(m.Sequence), 10) + ":" + strconv.FormatInt(m.StreamTime, 10) + ":" + m.TransactionalID
}

// Decode reads a metadata string. Anything else, such as what another program committed, is ok == false: the offset
// counts, the task starts at sequence 0.
func Decode(s string) (m Meta, ok bool) {
	parts := strings.SplitN(s, ":", 4)
	if len(parts) != 4 || parts[0] != prefix {
		return Meta{StreamTime: -1}, false
	}
	seq, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || seq < 0 {
		return Meta{StreamTime: -1}, false
	}
	st, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return Meta{StreamTime: -1}, false
	}
	return Meta{Sequence: store.Sequence(seq), StreamTime: st, TransactionalID: parts[3]}, true
}
