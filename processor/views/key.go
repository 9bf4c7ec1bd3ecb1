package views

import (
	"fmt"
	"strings"
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
		b = appendKeyPart(b, v)
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

// appendKeyPart appends one of several values of a key.
func appendKeyPart[T ~string | ~[]byte](b []byte, v T) []byte {
	for i := range len(v) {
		switch v[i] {
		case '%':
			b = append(b, "%25"...)
		case '/':
			b = append(b, "%2F"...)
		default:
			b = append(b, v[i])
		}
	}
	return b
}
