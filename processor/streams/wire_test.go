package streams

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor"
)

// TestInternalBytes: what is written between tasks and into stores of operators is read as it was, and bytes that were cut are refused or stand
// for something shorter; nothing is read beyond them.
func TestInternalBytes(t *testing.T) {
	t.Parallel()
	hash := [hashSize]byte{1, 2, 3}
	sub := subscription{what: subscribe, hash: hash, hashed: true, pk: []byte("left"), partition: 7}
	there := answer{hash: hash, hashed: true, there: true, value: []byte("right")}
	row := held{due: 5, timestamp: -6, before: []byte("a"), next: []byte("b"), headers: []processor.Header{{Key: "h", Value: []byte("v")}}}
	for name, c := range map[string]struct {
		bytes []byte
		again func(b []byte) ([]byte, error)
	}{
		"subscription": {sub.append(nil), func(b []byte) ([]byte, error) { s, err := parseSubscription(b); return s.append(nil), err }},
		"answer":       {there.append(nil), func(b []byte) ([]byte, error) { a, err := parseAnswer(b); return a.append(nil), err }},
		"nothing":      {(&answer{}).append(nil), func(b []byte) ([]byte, error) { a, err := parseAnswer(b); return a.append(nil), err }},
		"held":         {appendHeld(nil, &row), func(b []byte) ([]byte, error) { h, err := parseHeld(b); return appendHeld(nil, &h), err }},
		"changed": {appendChanged(nil, []byte("before"), []byte("after")), func(b []byte) ([]byte, error) {
			before, after, err := splitChanged(b)
			return appendChanged(nil, before, after), err
		}},
	} {
		for n := range len(c.bytes) + 1 {
			again, err := c.again(bytes.Clone(c.bytes[:n])[:n:n])
			if err == nil && (n == len(c.bytes) || name == "held") && !bytes.Equal(again, c.bytes[:n]) || err != nil && n == len(c.bytes) {
				t.Errorf("%s, %d of %d bytes: %x (%v), want %x", name, n, len(c.bytes), again, err, c.bytes[:n])
			}
		}
	}
}

// TestBytesOfOthers: bytes of versions and kinds that nobody has written are refused.
func TestBytesOfOthers(t *testing.T) {
	t.Parallel()
	sub := (&subscription{what: subscribe}).append(nil)
	sub[1] = byte(subscribe) + 1
	newer := (&subscription{}).append(nil)
	newer[0]++
	for name, read := range map[string]func() error{
		"an unknown instruction": func() error { _, err := parseSubscription(sub); return err },
		"a newer subscription":   func() error { _, err := parseSubscription(newer); return err },
		"a newer answer":         func() error { _, err := parseAnswer([]byte{1}); return err },
		"no answer":              func() error { _, err := parseAnswer(nil); return err },
		"no change":              func() error { _, _, err := splitChanged(nil); return err },
		"an unknown change":      func() error { _, _, err := splitChanged([]byte{1, changedLatest + changedBoth + 1}); return err },
	} {
		if read() == nil {
			t.Errorf("%s was read", name)
		}
	}
}

// TestLatestFlagIsPassedOver: upstream's bytes of a change may say whether it is the latest, before the kind (KIP-904, KIP-914).
func TestLatestFlagIsPassedOver(t *testing.T) {
	t.Parallel()
	plain := appendChanged(nil, []byte("before"), []byte("after"))
	flagged := append(bytes.Clone(plain[:len(plain)-1]), 1, changedLatest+changedBoth)
	before, after, err := splitChanged(flagged)
	if err != nil || string(before) != "before" || string(after) != "after" {
		t.Errorf("%q, %q: %v", before, after, err)
	}
	if d := cmp.Diff(plain, appendChanged(nil, before, after)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
