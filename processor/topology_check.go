package processor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// maxTopicName is the longest name of a topic that Kafka accepts, in bytes.
const maxTopicName = 249

// CheckName says what is wrong with a name that becomes part of the name of a topic: an application id, a store, a
// repartition. It returns nil for a good one.
func CheckName(name string) error { return reasonError(badName(name)) }

// CheckTopic says what is wrong with the name of a topic: Kafka would refuse it, or it is a pattern. It returns nil for
// a good one.
func CheckTopic(topic string) error { return reasonError(badTopic(topic)) }

func reasonError(reason string) error {
	if reason == "" {
		return nil
	}
	return errors.New(reason)
}

// badName says what is wrong with a name that becomes part of a topic's name; empty when nothing is.
func badName(name string) string {
	switch {
	case name == "":
		return "needs a name"
	case len(name) > maxTopicName:
		return fmt.Sprintf("name of %d bytes is above %d", len(name), maxTopicName)
	}
	for _, c := range name {
		if !legalInTopic(c) {
			return fmt.Sprintf("name %q: %q is not one of a-z A-Z 0-9 . _ -", name, c)
		}
	}
	return ""
}

// badTopic says what is wrong with the name of a topic; empty when nothing is.
func badTopic(topic string) string {
	switch {
	case topic == "":
		return "topic name is empty"
	case topic == "." || topic == "..":
		return fmt.Sprintf("topic %q: Kafka does not allow this name", topic)
	case len(topic) > maxTopicName:
		return fmt.Sprintf("topic name of %d bytes is above %d", len(topic), maxTopicName)
	case strings.ContainsAny(topic, `*+?[](){}|^$\`):
		return fmt.Sprintf("topic %q: topic patterns are not supported; name each topic", topic)
	}
	for _, c := range topic {
		if !legalInTopic(c) {
			return fmt.Sprintf("topic %q: %q is not one of a-z A-Z 0-9 . _ -", topic, c)
		}
	}
	return ""
}

func legalInTopic(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// badSpec says what is wrong with the declaration of a store; empty when nothing is.
func badSpec(s store.Spec) string {
	if reason := badName(string(s.Name)); reason != "" {
		return reason
	}
	if s.Caching && s.RetainDuplicates {
		return "a store that keeps duplicates has no record cache: no put replaces another"
	}
	if err := s.Validate(); err != nil {
		return err.Error()
	}
	for _, f := range []struct{ field, format string }{{"key", s.KeyFormat}, {"value", s.ValueFormat}} {
		if f.format != "" && !slices.Contains(serde.KnownFormats(), f.format) {
			return fmt.Sprintf("%s format %q is not one of %s", f.field, f.format, strings.Join(serde.KnownFormats(), ", "))
		}
	}
	if s.NoChangelog && len(s.ChangelogConfig) > 0 {
		return "has settings for a changelog that is switched off"
	}
	return ""
}
