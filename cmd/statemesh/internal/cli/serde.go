package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/statemesh/statemesh/serde"
)

// keyForms are the forms a key may be typed in.
var keyForms = append(serde.Builtin().Names(), "hex", "base64")

// parseKey reads a typed key. form is one of keyForms, or "" for text as it is.
func parseKey(text, form string) ([]byte, error) {
	var b []byte
	var err error
	switch form {
	case "hex":
		b, err = hex.DecodeString(text)
	case "base64":
		b, err = base64.StdEncoding.DecodeString(text)
	default:
		f, unknown := serde.Builtin().Lookup(form)
		if unknown != nil {
			return nil, usageError{fmt.Errorf("--key-type %q: want one of %v", form, keyForms)}
		}
		var v any
		if v, err = f.Parse(text); err == nil {
			b, err = f.Encode(v)
		}
		if e, ok := errors.AsType[*serde.EncodeError](err); ok {
			return nil, usageError{fmt.Errorf("key %q: the store's keys are %s: %w", text, e.Type, e.Err)}
		}
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("key %q: %w", text, err)}
	}
	return b, nil
}

// shown is a key or value for people and for programs.
type shown struct {
	text string          // for a table
	json json.RawMessage // for -o json
}

// show decodes data of a declared format. What is not what its store declares is shown as bytes: the reader wants to see
// it all the more.
func show(data []byte, format string) shown {
	f, err := serde.Builtin().Lookup(format)
	if err != nil {
		return showBytes(data)
	}
	v, err := f.Decode(data)
	if err != nil {
		return showBytes(data)
	}
	switch v := v.(type) {
	case []byte:
		return showBytes(data)
	case string:
		if !utf8.ValidString(v) {
			return showBytes(data)
		}
	case json.RawMessage:
		var buf bytes.Buffer
		if json.Compact(&buf, v) != nil {
			return showBytes(data)
		}
		return shown{buf.String(), buf.Bytes()}
	}
	text := serde.Text(v)
	raw, err := json.Marshal(v)
	if err != nil { // NaN and the infinities are no JSON numbers
		raw = quote(text)
	}
	return shown{text, raw}
}

func showBytes(data []byte) shown {
	if utf8.Valid(data) {
		return shown{strconv.Quote(string(data)), quote(string(data))}
	}
	s := "base64:" + base64.StdEncoding.EncodeToString(data)
	return shown{s, quote(s)}
}

func quote(s string) json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage(`""`) // a string always has a JSON form
	}
	return raw
}
