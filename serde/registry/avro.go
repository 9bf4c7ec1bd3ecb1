package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/statemesh/statemesh/serde"
)

// Avro is the serde of T as an Avro schema has it (upstream's KafkaAvroSerializer and -Deserializer). T is a struct with avro
// tags, or map[string]any, or what fits the schema. Bytes that were written with another version of the schema are read as
// this one, as Avro's rules of resolution say, or refused as an [*IncompatibleError]. A schema of bare bytes has them as
// they are, without Avro's length, when T is []byte: so it is upstream.
func Avro[T any](c *Client, schema string) (serde.Serde[T], error) {
	reader, err := avro.Parse(schema)
	if err != nil {
		return serde.Serde[T]{}, fmt.Errorf("registry: avro schema: %w", err)
	}
	root := reader.Root()
	a := &avroSerde[T]{c: c, reader: reader, text: sr.Schema{Schema: schema, Type: sr.TypeAvro}, name: "avro " + root.Type}
	if root.Name != "" {
		if a.record = root.Name; root.Namespace != "" {
			a.record = root.Namespace + "." + root.Name
		}
		a.name = "avro " + a.record
	}
	var zero T
	_, bytes := any(zero).([]byte)
	a.bare = bytes && root.Type == "bytes" && root.LogicalType == ""
	a.resolved = newMemo[int, *avro.Schema](c)
	return a.at(place{}), nil
}

type avroSerde[T any] struct {
	c        *Client
	reader   *avro.Schema
	text     sr.Schema
	name     string
	record   string // full name, empty when the schema is of no named type
	bare     bool   // bytes without a length
	resolved *memo[int, *avro.Schema]
}

func (a *avroSerde[T]) at(p place) serde.Serde[T] {
	writer := a.c.writer(p, a.record, a.c.publisher(a.text))
	s := serde.New(a.name, func(dst []byte, v T) ([]byte, error) { return a.append(dst, v, writer) }, a.decode).As(serde.FormatAvro)
	return serde.Bind(s, func(topic string, part serde.Part) serde.Serde[T] { return a.at(place{topic, part}) })
}

func (a *avroSerde[T]) append(dst []byte, v T, writer func() (int, error)) ([]byte, error) {
	id, err := writer()
	if err != nil {
		return nil, err
	}
	dst = appendHeader(dst, id)
	if b, ok := any(v).([]byte); ok && a.bare {
		return append(dst, b...), nil
	}
	if dst, err = a.reader.AppendEncode(dst, v); err != nil {
		return nil, avroError(err)
	}
	return dst, nil
}

func (a *avroSerde[T]) decode(b []byte) (v T, err error) {
	id, rest, err := splitHeader(b)
	if err != nil {
		return v, err
	}
	schema, err := a.resolved.get(id, func() (*avro.Schema, error) { return a.resolve(id) })
	if err != nil {
		return v, err
	}
	if a.bare {
		bare, _ := any(append([]byte{}, rest...)).(T)
		return bare, nil
	}
	err = decodeAvro(schema, rest, &v)
	return v, err
}

// resolve returns what reads the writer's bytes into what the reader's schema says.
func (a *avroSerde[T]) resolve(id int) (*avro.Schema, error) {
	writer, err := a.c.avroSchema(id)
	if err != nil {
		return nil, err
	}
	s, err := avro.Resolve(writer, a.reader)
	if err != nil {
		return nil, &IncompatibleError{ID: id, Reason: err.Error()}
	}
	return s, nil
}

// avroSchema returns the schema of an id, with those that it refers to.
func (c *Client) avroSchema(id int) (*avro.Schema, error) {
	s, err := c.schema(id)
	if err != nil {
		return nil, err
	}
	if s.Type != sr.TypeAvro {
		return nil, &IncompatibleError{ID: id, Reason: fmt.Sprintf("%s, want AVRO", s.Type)}
	}
	var named avro.SchemaCache
	if err := c.references(fmt.Sprintf("schema %d", id), s.References, make(map[string]bool), func(text string) error {
		_, err := named.Parse(text)
		return err
	}); err != nil {
		return nil, err
	}
	parsed, err := named.Parse(s.Schema)
	if err != nil {
		return nil, &IncompatibleError{ID: id, Reason: err.Error()}
	}
	return parsed, nil
}

// references visits what a schema refers to, what those refer to first.
func (c *Client) references(what string, refs []sr.SchemaReference, seen map[string]bool, visit func(schema string) error) error {
	for _, r := range refs {
		key := fmt.Sprintf("%s/%d", r.Subject, r.Version)
		if seen[key] {
			continue
		}
		seen[key] = true
		var s sr.SubjectSchema
		err := c.ask(what, func(ctx context.Context, cl *sr.Client) (err error) {
			s, err = cl.SchemaByVersion(ctx, r.Subject, r.Version)
			return err
		})
		if err != nil {
			return err
		}
		if err := c.references(what, s.References, seen, visit); err != nil {
			return err
		}
		if err := visit(s.Schema.Schema); err != nil {
			return err
		}
	}
	return nil
}

// decodeAvro reads b, all of it, into v.
func decodeAvro(s *avro.Schema, b []byte, v any) error {
	rest, err := s.Decode(b, v)
	switch {
	case err != nil:
		return avroError(err)
	case len(rest) > 0:
		return fmt.Errorf("%d bytes behind the value", len(rest))
	}
	return nil
}

// avroError says what the library found, without what it quotes of values.
func avroError(err error) error {
	if e, ok := errors.AsType[*avro.ShortBufferError](err); ok {
		return fmt.Errorf("too few bytes for a %s", e.Type)
	}
	if e, ok := errors.AsType[*avro.SemanticError](err); ok {
		switch {
		case e.Field != "":
			return fmt.Errorf("field %s: not between %v and %s", e.Field, e.GoType, e.AvroType)
		default:
			return fmt.Errorf("not between %v and %s", e.GoType, e.AvroType)
		}
	}
	return errors.New("no value of the schema")
}
