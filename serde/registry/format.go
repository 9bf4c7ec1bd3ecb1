package registry

import (
	"encoding/json"
	"errors"

	"github.com/twmb/avro"

	"github.com/statemesh/statemesh/serde"
)

// Formats returns the formats of bytes that begin with the id of a schema, for programs that have no types. Their
// values are read as JSON, and not written: which schema would it be?
func (c *Client) Formats() []serde.Format {
	schemas := newMemo[int, *avro.Schema](c)
	return []serde.Format{
		readOnly(serde.New(serde.FormatAvro, noBytes, func(b []byte) (json.RawMessage, error) {
			id, rest, err := splitHeader(b)
			if err != nil {
				return nil, err
			}
			s, err := schemas.get(id, func() (*avro.Schema, error) { return c.avroSchema(id) })
			if err != nil {
				return nil, err
			}
			var v any
			if err := decodeAvro(s, rest, &v); err != nil {
				return nil, err
			}
			text, err := s.EncodeJSON(v)
			if err != nil {
				return nil, avroError(err)
			}
			return text, nil
		})),
		readOnly(serde.New(serde.FormatJSONSchema, noBytes, func(b []byte) (json.RawMessage, error) {
			rest, err := c.jsonBody(b)
			if err != nil {
				return nil, err
			}
			return serde.JSON[json.RawMessage]().Decode(rest)
		})),
	}
}

var errReadOnly = errors.New("values under a schema of a registry are read, not written")

func noBytes([]byte, json.RawMessage) ([]byte, error) { return nil, errReadOnly }

func readOnly(s serde.Serde[json.RawMessage]) serde.Format {
	refused := &serde.EncodeError{Type: s.Name(), Err: errReadOnly}
	return serde.Format{
		Name:   s.Name(),
		Decode: func(b []byte) (any, error) { return s.Decode(b) },
		Encode: func(any) ([]byte, error) { return nil, refused },
		Parse:  func(string) (any, error) { return nil, refused },
	}
}
