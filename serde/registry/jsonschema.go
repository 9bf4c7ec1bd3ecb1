package registry

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/statemesh/statemesh/serde"
)

// JSONSchema is the serde of T as encoding/json has it, under a JSON Schema (upstream's KafkaJsonSchemaSerializer and
// -Deserializer). Values are not checked against the schema, as they are not upstream by default: it is the contract that the
// registry keeps compatible, and that tells other bytes apart.
func JSONSchema[T any](c *Client, schema string) (serde.Serde[T], error) {
	var head struct {
		Title string `json:"title"`
	}
	if err := json.Unmarshal([]byte(schema), &head); err != nil {
		return serde.Serde[T]{}, fmt.Errorf("registry: json schema: %w", err)
	}
	j := &jsonSerde[T]{c: c, text: sr.Schema{Schema: schema, Type: sr.TypeJSON}, title: head.Title, values: serde.JSON[T]()}
	return j.at(place{}), nil
}

type jsonSerde[T any] struct {
	c      *Client
	text   sr.Schema
	title  string
	values serde.Serde[T]
}

func (j *jsonSerde[T]) at(p place) serde.Serde[T] {
	name := "json schema"
	if j.title != "" {
		name += " " + j.title
	}
	writer := j.c.writer(p, j.title, j.c.publisher(j.text))
	s := serde.New(name, func(dst []byte, v T) ([]byte, error) {
		id, err := writer()
		if err != nil {
			return nil, err
		}
		return j.values.Append(appendHeader(dst, id), v)
	}, j.decode).As(serde.FormatJSONSchema)
	return serde.Bind(s, func(topic string, part serde.Part) serde.Serde[T] { return j.at(place{topic, part}) })
}

func (j *jsonSerde[T]) decode(b []byte) (v T, err error) {
	rest, err := j.c.jsonBody(b)
	if err != nil {
		return v, err
	}
	return j.values.Decode(rest)
}

// jsonBody returns the JSON behind the header of a JSON Schema.
func (c *Client) jsonBody(b []byte) ([]byte, error) {
	id, rest, err := splitHeader(b)
	if err != nil {
		return nil, err
	}
	s, err := c.schema(id)
	switch {
	case err != nil:
		return nil, err
	case s.Type != sr.TypeJSON:
		return nil, &IncompatibleError{ID: id, Reason: fmt.Sprintf("%s, want JSON", s.Type)}
	case len(rest) == 0:
		return nil, errors.New("nothing behind the header")
	}
	return rest, nil
}
