// Package protobuf is the serde of protobuf messages. It is apart from package serde so that who has none links no protobuf.
package protobuf

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/statemesh/statemesh/serde"
)

// Of is the serde of a generated message, encoded deterministically; T is the pointer to it. A nil message is refused; a
// message without fields set is the empty slice. For keys: the bytes are those that other programs write only as long as
// these are deterministic too, in the same version.
func Of[T proto.Message]() serde.Serde[T] {
	var zero T
	name := string(zero.ProtoReflect().Descriptor().FullName())
	return serde.New(name,
		func(dst []byte, m T) ([]byte, error) {
			if !m.ProtoReflect().IsValid() {
				return nil, nil
			}
			return proto.MarshalOptions{Deterministic: true}.MarshalAppend(dst, m)
		},
		func(b []byte) (T, error) {
			m, ok := zero.ProtoReflect().New().Interface().(T)
			if !ok {
				return zero, errors.New("its type makes another one")
			}
			if err := proto.Unmarshal(b, m); err != nil {
				return zero, err // says what, not with which data
			}
			return m, nil
		})
}
