package commitmeta

import (
	"encoding/base64"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
)

// Time is what an operator of a task has seen of time.
type Time struct {
	// ID of the operator: [TimeID] of its name.
	ID string
	// At in Unix milliseconds; Unobserved before its first record.
	At int64
}

// Unobserved is the time of an operator that has seen no record.
const Unobserved int64 = math.MinInt64

// MaxTimes is how many times a task may have: with the longest of them, and the longest transactional id, the metadata stays below what
// brokers take (offset.metadata.max.bytes, 4096).
const MaxTimes = 128

const (
	timesMark = ";t="
	idBytes   = 8 // of a TimeID
)

// TimeID is what a commit calls the operator of a name: eight letters that depend on nothing else.
func TimeID(name string) string {
	h := fnv.New64a()
	h.Write([]byte(name)) // never fails
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:6])
}

// EncodeTimes writes the times: each id with how far the operator is behind the stream time, in base 36, with commas between them,
// nothing standing for Unobserved.
func EncodeTimes(streamTime int64, times []Time) string {
	if len(times) == 0 {
		return ""
	}
	b := make([]byte, 0, len(times)*(idBytes+4))
	for i, t := range times {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, t.ID...)
		if t.At != Unobserved {
			b = strconv.AppendInt(b, streamTime-t.At, 36) // may wrap around, and back again
		}
	}
	return string(b)
}

// decodeTimes is lenient: what it cannot read is a time that nobody has seen, as that of an operator that is new.
func decodeTimes(s string, streamTime int64) map[string]int64 {
	if s == "" {
		return nil
	}
	times := make(map[string]int64)
	for part := range strings.SplitSeq(s, ",") {
		if len(part) < idBytes {
			continue
		}
		id, behind := part[:idBytes], part[idBytes:]
		times[id] = Unobserved
		if d, err := strconv.ParseInt(behind, 36, 64); err == nil {
			times[id] = streamTime - d
		}
	}
	return times
}
