package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/statemesh/statemesh/client"
)

// keyForms are the forms a key may be typed in.
var keyForms = []string{"string", "int64", "double", "json", "hex", "base64"}

// parseKey reads a typed key. form is one of keyForms, or "bytes" and "" for text as it is.
func parseKey(text, form string) ([]byte, error) {
	switch form {
	case "", "bytes", "string":
		return []byte(text), nil
	case "int64":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, usageError{fmt.Errorf("key %q: the store's keys are int64: want a whole number", text)}
		}
		return client.Int64().Encode(n)
	case "double":
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, usageError{fmt.Errorf("key %q: the store's keys are double: want a number", text)}
		}
		return client.Float64().Encode(x)
	case "json":
		if !json.Valid([]byte(text)) {
			return nil, usageError{fmt.Errorf("key %q: the store's keys are json", text)}
		}
		return []byte(text), nil
	case "hex":
		b, err := hex.DecodeString(text)
		if err != nil {
			return nil, usageError{fmt.Errorf("key %q: %w", text, err)}
		}
		return b, nil
	case "base64":
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, usageError{fmt.Errorf("key %q: %w", text, err)}
		}
		return b, nil
	default:
		return nil, usageError{fmt.Errorf("--key-type %q: want one of %v", form, keyForms)}
	}
}

// shown is a key or value for people and for programs.
type shown struct {
	text string          // for a table
	json json.RawMessage // for -o json
}

// show decodes data of a declared format. What is not what its store declares is shown as bytes: the reader wants to see
// it all the more.
func show(data []byte, format string) shown {
	switch format {
	case "int64":
		if n, err := client.Int64().Decode(data); err == nil {
			s := strconv.FormatInt(n, 10)
			return shown{s, json.RawMessage(s)}
		}
	case "double":
		if x, err := client.Float64().Decode(data); err == nil {
			s := strconv.FormatFloat(x, 'g', -1, 64)
			if raw, err := json.Marshal(x); err == nil {
				return shown{s, raw}
			}
			return shown{s, quote(s)} // NaN and the infinities are no JSON numbers
		}
	case "json":
		var buf bytes.Buffer
		if json.Compact(&buf, data) == nil {
			return shown{buf.String(), buf.Bytes()}
		}
	case "string":
		if utf8.Valid(data) {
			return shown{string(data), quote(string(data))}
		}
	}
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
