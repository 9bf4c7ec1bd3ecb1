package declared

import (
	"bytes"
	"testing"

	"github.com/statemesh/statemesh/serde"
)

// FuzzCarriers: what was written is read, and what was not is an error, not a panic.
func FuzzCarriers(f *testing.F) {
	for _, c := range []*carrier{
		{value: []byte("v")},
		{value: []byte{}, key: []byte{}},
		{value: []byte("v"), key: []byte("k"), rights: []right{{}, {value: []byte{}}, {value: []byte("r"), key: []byte("q")}}},
	} {
		for _, s := range []serde.Serde[*carrier]{carriers(), metCarriers()} {
			b, err := s.Append(nil, c)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, s := range []serde.Serde[*carrier]{carriers(), metCarriers()} {
			c, err := s.Decode(b)
			if err != nil {
				continue
			}
			again, err := s.Append(nil, c)
			if err != nil {
				t.Fatal(err)
			}
			other, err := s.Decode(again)
			if err != nil || !bytes.Equal(other.value, c.value) || !bytes.Equal(other.key, c.key) || (other.key == nil) != (c.key == nil) || len(other.rights) != len(c.rights) {
				t.Fatalf("%+v is %+v after it was written, %v", c, other, err)
			}
			for i, r := range c.rights {
				if o := other.rights[i]; !bytes.Equal(o.value, r.value) || (o.value == nil) != (r.value == nil) || !bytes.Equal(o.key, r.key) {
					t.Fatalf("%+v is %+v after it was written", r, o)
				}
			}
		}
	})
}
