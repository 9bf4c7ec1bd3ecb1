package configfile

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/statemesh/statemesh/processor/expr"
)

// The constructors below make the tables short: name, default, where it goes, meaning.

func scalarOf(typ string, set func(string) error) func(p *parser, path string, n *yaml.Node) {
	return func(p *parser, path string, n *yaml.Node) {
		if v, ok := p.scalar(path, typ, n); ok {
			if err := set(v); err != nil {
				p.bad(n, path+": "+err.Error(), "")
			}
		}
	}
}

func words(name string, at func() *string, meaning string) RelationKey {
	return RelationKey{Name: name, Type: "string", Meaning: meaning, read: scalarOf("string", func(v string) error { *at() = v; return nil })}
}

func wordOf[T ~string](name, def string, at func() *T, of []T, meaning string) RelationKey {
	return RelationKey{Name: name, Type: joinNames(of), Default: def, Meaning: meaning, read: scalarOf(joinNames(of), func(v string) error {
		*at() = T(v)
		return oneOf(T(v), of...)
	})}
}

func oneOf[T ~string](v T, of ...T) error {
	if slices.Contains(of, v) {
		return nil
	}
	return fmt.Errorf("%q is not one of %s", v, joinNames(of))
}

func yes(name string, at func() *bool, meaning string) RelationKey {
	return RelationKey{Name: name, Type: "boolean", Default: "false", Meaning: meaning, read: scalarOf("boolean", func(v string) (err error) {
		*at(), err = parseBool(v)
		return err
	})}
}

func whole[T ~int | ~int32](name string, at func() *T, def, meaning string) RelationKey {
	return RelationKey{Name: name, Type: "integer", Default: def, Meaning: meaning, read: scalarOf("integer", func(v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is no whole number", v)
		}
		*at() = T(n)
		return nil
	})}
}

func lasting(name string, at func() *time.Duration, meaning string) RelationKey {
	return RelationKey{Name: name, Type: "duration", Meaning: meaning, read: scalarOf("duration", func(v string) (err error) {
		*at(), err = parseDuration(v)
		return err
	})}
}

func expression(name string, at func() **expr.Source, meaning string) RelationKey {
	return RelationKey{Name: name, Type: "expression", Meaning: meaning, read: func(p *parser, path string, n *yaml.Node) {
		if src, ok := p.source(path, n); ok {
			*at() = &src
		}
	}}
}
