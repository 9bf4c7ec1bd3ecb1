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
	// Observed are the times of the task's operators at the commit, as [EncodeTimes] wrote them beside StreamTime. Empty: the task has no
	// such operators, or the commit is that of a version without them.
	Observed string
}

// Encode returns the metadata string: "sm1:<sequence>:<stream time>:<transactional id>", and ";t=<times>" if there are any. They come
// last for versions that do not know them: those read a longer transactional id, which they compare only with what they wrote themselves.
func (m Meta) Encode() string {
	s := prefix + ":" + strconv.FormatInt(int64(m.Sequence), 10) + ":" + strconv.FormatInt(m.StreamTime, 10) + ":" + m.TransactionalID
	if m.Observed != "" {
		s += timesMark + m.Observed
	}
	return s
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
	m = Meta{Sequence: store.Sequence(seq), StreamTime: st, TransactionalID: parts[3]}
	if i := strings.LastIndex(parts[3], timesMark); i >= 0 { // no application id, which names topics, has a semicolon
		m.TransactionalID, m.Observed = parts[3][:i], parts[3][i+len(timesMark):]
	}
	return m, true
}

// Times are those of the task's operators by their ids, nil where the commit has none. They may be changed.
func (m Meta) Times() map[string]int64 { return decodeTimes(m.Observed, m.StreamTime) }
