package views

import (
	"fmt"
	"strings"

	"github.com/statemesh/statemesh/processor/internal/decode"
)

// EncodeKey is the key of a view with these values of its key fields. One value is the key as it is. Several are joined
// by "/", with every "%" in a value written as "%25" and every "/" as "%2F": different values give different keys, the
// key can be typed, and all keys that begin with the same values share a prefix that can be scanned ("EWR/").
func EncodeKey(values ...string) string {
	if len(values) == 1 {
		return values[0]
	}
	var b []byte
	for i, v := range values {
		if i > 0 {
			b = append(b, '/')
		}
		b = decode.AppendKeyPart(b, v)
	}
	return string(b)
}

// DecodeKey returns the n values of a key that [EncodeKey] made.
func DecodeKey(key string, n int) ([]string, error) {
	if n == 1 {
		return []string{key}, nil
	}
	parts := strings.Split(key, "/")
	if len(parts) != n {
		return nil, fmt.Errorf("key of %d values, want %d joined by \"/\"", len(parts), n)
	}
	for i, p := range parts {
		v := keyUnescaper.Replace(p)
		if EncodeKey(v, "") != p+"/" {
			return nil, fmt.Errorf("value %d of the key: %% is written as %%25, / as %%2F, nothing else is escaped", i+1)
		}
		parts[i] = v
	}
	return parts, nil
}

var keyUnescaper = strings.NewReplacer("%25", "%", "%2F", "/")
