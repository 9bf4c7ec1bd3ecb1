package views

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/decode"
	"github.com/statemesh/statemesh/serde"
)

// FieldError is one thing that is wrong with a list of views.
type FieldError struct {
	// Path leads to the setting: "views", "views[2].name", "views[2].columns[0]". Numbers count from 0.
	Path   string
	Reason string
}

func (e *FieldError) Error() string { return e.Path + ": " + e.Reason }

// Validate reports everything that is wrong with the views, joined, each as a [*FieldError]; nil when nothing is.
func Validate(views []View) error {
	var c checker
	if len(views) == 0 {
		c.fail("views", "at least one view is needed")
	}
	named := make(map[string]int)
	topics := make(map[string]int)
	for i, v := range views {
		c.view(i, v)
		if first, ok := named[v.Name]; ok && v.Name != "" {
			c.fail(at(i, "name"), fmt.Sprintf("%q is the name of views[%d] already", v.Name, first))
		} else {
			named[v.Name] = i
		}
		if first, ok := topics[v.Topic]; !ok {
			topics[v.Topic] = i
		} else if other := views[first]; other.Global || v.Global {
			c.fail(at(i, "topic"), fmt.Sprintf("views[%d] reads topic %s already, and a global table shares its topic with no view", first, v.Topic))
		} else if other.OffsetReset != v.OffsetReset {
			c.fail(at(i, "offset_reset"), fmt.Sprintf("%s, but views[%d] reads topic %s with %s; a topic is read once",
				v.OffsetReset, first, v.Topic, other.OffsetReset))
		} else if other.Timestamp != v.Timestamp {
			c.fail(at(i, "timestamp"), fmt.Sprintf("%q, but views[%d] reads topic %s with %q; a record has one time",
				v.Timestamp, first, v.Topic, other.Timestamp))
		}
	}
	return errors.Join(c.errs...)
}

type checker struct{ errs []error }

func (c *checker) fail(path, reason string) {
	c.errs = append(c.errs, &FieldError{Path: path, Reason: reason})
}

func at(i int, field string) string { return fmt.Sprintf("views[%d].%s", i, field) }

func (c *checker) view(i int, v View) {
	if err := processor.CheckName(v.Name); err != nil {
		c.fail(at(i, "name"), err.Error())
	}
	if err := processor.CheckTopic(v.Topic); err != nil {
		c.fail(at(i, "topic"), err.Error())
	}
	if !slices.Contains(Formats(), v.Format) {
		c.fail(at(i, "format"), unknown(v.Format, Formats()))
	}
	c.columns(i, v)
	for j, f := range v.Key {
		path := fmt.Sprintf("views[%d].key[%d]", i, j)
		c.field(path, v, f)
		if slices.Contains(v.Key[:j], f) {
			c.fail(path, fmt.Sprintf("%q is named twice", f))
		}
	}
	switch {
	case !slices.Contains(Types(), v.Type):
		c.fail(at(i, "type"), unknown(v.Type, Types()))
	case v.Type.ofField() && v.Field == "":
		c.fail(at(i, "field"), fmt.Sprintf("type %s needs the field it is about", v.Type))
	case v.Type.ofField():
		c.field(at(i, "field"), v, v.Field)
	case v.Field != "":
		c.fail(at(i, "field"), fmt.Sprintf("type %s is about no field", v.Type))
	}
	if v.Timestamp != "" {
		c.field(at(i, "timestamp"), v, v.Timestamp)
	}
	if v.Window != (Window{}) {
		c.window(i, v)
	}
	if v.History != 0 {
		c.history(i, v)
	}
	if v.Global {
		c.global(i, v)
	}
	switch {
	case v.Partitions < 0:
		c.fail(at(i, "partitions"), fmt.Sprintf("%d: want 0 for as many as the topic has, or more", v.Partitions))
	case v.Partitions > 0 && len(v.Key) == 0:
		c.fail(at(i, "partitions"), "a view by the record's key has the partitions of its topic")
	}
	if v.OffsetReset > processor.ResetNone {
		c.fail(at(i, "offset_reset"), fmt.Sprintf("%s: want earliest, latest or none", v.OffsetReset))
	}
	formats := serde.KnownFormats()
	switch {
	case v.KeyFormat == "":
	case len(v.Key) > 0:
		c.fail(at(i, "key_format"), "a key made of fields is a string")
	case !slices.Contains(formats, v.KeyFormat):
		c.fail(at(i, "key_format"), unknown(v.KeyFormat, formats))
	}
}

func (c *checker) window(i int, v View) {
	if v.Type.keepsValue() {
		c.fail(at(i, "window"), fmt.Sprintf("type %s keeps no windows", v.Type))
	}
	for _, p := range v.Window.problems() {
		path := at(i, "window")
		if p.Path != "" {
			path += "." + p.Path
		}
		c.fail(path, p.Reason)
	}
}

func (c *checker) history(i int, v View) {
	const setting = "versioned.history"
	if v.Type != Table {
		c.fail(at(i, setting), fmt.Sprintf("type %s keeps no versions", v.Type))
	}
	switch {
	case v.History < time.Millisecond:
		c.fail(at(i, setting), fmt.Sprintf("%s: want at least 1ms", v.History))
	case v.History%time.Millisecond != 0:
		c.fail(at(i, setting), fmt.Sprintf("%s: want whole milliseconds", v.History))
	}
}

func (c *checker) global(i int, v View) {
	switch {
	case v.Type != Table:
		c.fail(at(i, "global"), fmt.Sprintf("type %s depends on the order over all partitions; only a table can be global", v.Type))
	case len(v.Key) > 0:
		c.fail(at(i, "global"), "a global table is by the record's key: its topic is its changelog")
	case v.History != 0:
		c.fail(at(i, "global"), "a global table has no versions")
	}
	if v.OffsetReset != processor.ResetDefault {
		c.fail(at(i, "offset_reset"), "a global table reads its topic from the start")
	}
}

func (c *checker) columns(i int, v View) {
	if v.Format != CSV {
		if len(v.Columns) > 0 {
			c.fail(at(i, "columns"), fmt.Sprintf("only csv has columns, not %q", v.Format))
		}
		return
	}
	if len(v.Columns) == 0 {
		c.fail(at(i, "columns"), "csv needs the names of its columns, in order")
	}
	for j, col := range v.Columns {
		path := fmt.Sprintf("views[%d].columns[%d]", i, j)
		switch {
		case col == "":
			c.fail(path, "a column needs a name")
		case !utf8.ValidString(col):
			c.fail(path, "the name is not valid UTF-8")
		case slices.Contains(v.Columns[:j], col):
			c.fail(path, fmt.Sprintf("%q is named twice", col))
		}
	}
}

// field checks that the format can have a field with this name.
func (c *checker) field(path string, v View, name string) {
	switch {
	case name == "":
		c.fail(path, "a field needs a name")
	case v.Format == CSV && len(v.Columns) > 0 && !slices.Contains(v.Columns, name):
		c.fail(path, fmt.Sprintf("%q is not a column; the columns are %s", name, strings.Join(v.Columns, ", ")))
	case v.Format == String && name != decode.Whole:
		c.fail(path, fmt.Sprintf("%q: the only field of a string is %q", name, decode.Whole))
	case v.Format == Bytes:
		c.fail(path, fmt.Sprintf("%q: bytes have no fields", name))
	case v.Format == JSON && slices.Contains(strings.Split(name, "."), ""):
		c.fail(path, fmt.Sprintf("%q: a path has a name before and after each dot", name))
	}
}

func unknown[T ~string](have T, known []T) string {
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	if have == "" {
		return "is missing; want one of " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("%q is unknown; want one of %s", string(have), strings.Join(names, ", "))
}
