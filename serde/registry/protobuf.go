package registry

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/serde/protobuf"
)

// Protobuf is the serde of a generated message (upstream's KafkaProtobufSerializer and -Deserializer); T is the pointer to it.
// Its schema is the file that declares it; the files that this one imports, Google's own apart, are registered under their paths,
// as upstream does by default. Bytes of another message of a file are refused as an [*IncompatibleError].
func Protobuf[T proto.Message](c *Client) serde.Serde[T] {
	var zero T
	message := zero.ProtoReflect().Descriptor()
	p := &protoSerde[T]{
		c: c, file: message.ParentFile(), name: string(message.FullName()), index: indexOf(message),
		messages: protobuf.Of[T](), accepted: newMemo[protoPlace, bool](c),
	}
	return p.at(place{})
}

type protoSerde[T proto.Message] struct {
	c        *Client
	file     protoreflect.FileDescriptor
	name     string
	index    []int // of the message in its file, from outside to inside
	messages serde.Serde[T]
	accepted *memo[protoPlace, bool]
}

// protoPlace is where bytes say that their message is declared.
type protoPlace struct {
	id    int
	index string // as in the bytes; empty when it is that of the own message
}

func (p *protoSerde[T]) at(at place) serde.Serde[T] {
	writer := p.c.writer(at, p.name, func(ctx context.Context, cl *sr.Client, subject string) (sr.SubjectSchema, error) {
		return p.c.publishFile(ctx, cl, subject, p.file)
	})
	s := serde.New("protobuf "+p.name, func(dst []byte, m T) ([]byte, error) {
		id, err := writer()
		if err != nil {
			return nil, err
		}
		return p.messages.Append(appendIndex(appendHeader(dst, id), p.index), m)
	}, p.decode)
	return serde.Bind(s, func(topic string, part serde.Part) serde.Serde[T] { return p.at(place{topic, part}) })
}

// publishFile finds or registers a file, what it imports first: a reference is to a version that there is.
func (c *Client) publishFile(ctx context.Context, cl *sr.Client, subject string, f protoreflect.FileDescriptor) (sr.SubjectSchema, error) {
	text, err := fileText(f)
	if err != nil {
		return sr.SubjectSchema{}, err
	}
	s := sr.Schema{Schema: text, Type: sr.TypeProtobuf}
	for i := range f.Imports().Len() {
		imported := f.Imports().Get(i)
		if strings.HasPrefix(imported.Path(), "google/protobuf/") { // every registry has them
			continue
		}
		have, err := c.publishFile(ctx, cl, imported.Path(), imported)
		if err != nil {
			return have, err
		}
		s.References = append(s.References, sr.SchemaReference{Name: imported.Path(), Subject: have.Subject, Version: have.Version})
	}
	return c.publish(ctx, cl, subject, s)
}

func (p *protoSerde[T]) decode(b []byte) (m T, err error) {
	id, rest, err := splitHeader(b)
	if err != nil {
		return m, err
	}
	index, body, err := splitIndex(rest)
	if err != nil {
		if _, other := p.c.protoSchema(id); other != nil {
			err = other // says more
		}
		return m, err
	}
	at := protoPlace{id: id}
	if !slices.Equal(index, p.index) {
		at.index = string(rest[:len(rest)-len(body)])
	}
	if _, err := p.accepted.get(at, func() (bool, error) { return true, p.accept(id, index) }); err != nil {
		return m, err
	}
	return p.messages.Decode(body)
}

// accept checks that the message at a place of the file with that id is this one. A registry that gives the file only in the
// language is taken at the place: that of this message in its own file.
func (p *protoSerde[T]) accept(id int, index []int) error {
	s, err := p.c.protoSchema(id)
	if err != nil {
		return err
	}
	name, ok := nameAt(s.Schema, index)
	switch {
	case ok && name == p.name, !ok && slices.Equal(index, p.index):
		return nil
	case ok && name != "":
		return &IncompatibleError{ID: id, Reason: fmt.Sprintf("message %s, want %s", name, p.name)}
	}
	return &IncompatibleError{ID: id, Reason: fmt.Sprintf("message at %v, want %s at %v", index, p.name, p.index)}
}

func (c *Client) protoSchema(id int) (sr.Schema, error) {
	s, err := c.schema(id)
	if err == nil && s.Type != sr.TypeProtobuf {
		err = &IncompatibleError{ID: id, Reason: fmt.Sprintf("%s, want PROTOBUF", s.Type)}
	}
	return s, err
}

// fileText is a file as registries take it beside the language: its descriptor, base64.
func fileText(f protoreflect.FileDescriptor) (string, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(protodesc.ToFileDescriptorProto(f))
	if err != nil {
		return "", fmt.Errorf("registry: protobuf file %s: %w", f.Path(), err)
	}
	return base64.StdEncoding.EncodeToString(b), nil
}

// nameAt is the full name of the message at a place of a file, empty when there is none; ok is false when text is no file's
// descriptor.
func nameAt(text string, index []int) (name string, ok bool) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", false
	}
	var f descriptorpb.FileDescriptorProto
	if err := proto.Unmarshal(b, &f); err != nil {
		return "", false
	}
	name, level := f.GetPackage(), f.GetMessageType()
	for _, i := range index {
		if i < 0 || i >= len(level) {
			return "", true
		}
		if name != "" {
			name += "."
		}
		name += level[i].GetName()
		level = level[i].GetNestedType()
	}
	return name, true
}

func indexOf(m protoreflect.MessageDescriptor) []int {
	var index []int
	for d := protoreflect.Descriptor(m); d != nil; d = d.Parent() {
		if _, ok := d.(protoreflect.MessageDescriptor); !ok {
			break
		}
		index = append(index, d.Index())
	}
	slices.Reverse(index)
	return index
}

// appendIndex appends the place of a message: how many numbers, then they, as zig-zag varints; the first message of a file
// is a single 0.
func appendIndex(dst []byte, index []int) []byte {
	if len(index) == 1 && index[0] == 0 {
		return append(dst, 0)
	}
	dst = binary.AppendVarint(dst, int64(len(index)))
	for _, i := range index {
		dst = binary.AppendVarint(dst, int64(i))
	}
	return dst
}

// maxNesting of messages in each other that is read.
const maxNesting = 64

var errIndex = errors.New("no place of a message in its file")

func splitIndex(b []byte) (index []int, rest []byte, err error) {
	next := func() (int, bool) {
		v, n := binary.Varint(b)
		if n <= 0 || v < 0 || v > 1<<31-1 {
			return 0, false
		}
		b = b[n:]
		return int(v), true
	}
	count, ok := next()
	switch {
	case !ok || count > maxNesting:
		return nil, nil, errIndex
	case count == 0:
		return []int{0}, b, nil
	}
	for range count {
		i, ok := next()
		if !ok {
			return nil, nil, errIndex
		}
		index = append(index, i)
	}
	return index, b, nil
}
