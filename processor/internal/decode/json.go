package decode

import (
	"encoding/base64"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth of nested JSON, that of encoding/json.
const maxDepth = 10000

// JSON checks that a value is JSON, as encoding/json does, and takes members out of it on the way: one pass, no
// reflection, nothing kept of what nobody asked for. Bytes that are no UTF-8 are refused, not replaced.
type JSON struct {
	root    *member // nil when nothing is asked for: then any JSON value will do
	scratch []byte  // of strings with escapes of the record in hand

	// The record in hand.
	value  []byte
	at     int
	fields []Field
}

// member is a member that is asked for, or on the way to one.
type member struct {
	name     string
	slot     int // index into fields, -1 when only on the way
	children []*member
}

// NewJSON returns a decoder for members by their path, "a.b" for the member b of the member a.
func NewJSON(names []string) *JSON {
	d := &JSON{}
	for i, name := range names {
		if d.root == nil {
			d.root = &member{slot: -1}
		}
		m := d.root
		for step := range strings.SplitSeq(name, ".") {
			next := m.child([]byte(step))
			if next == nil {
				next = &member{name: step, slot: -1}
				m.children = append(m.children, next)
			}
			m = next
		}
		m.slot = i
	}
	return d
}

func (m *member) child(name []byte) *member {
	if m == nil {
		return nil
	}
	for _, c := range m.children {
		if c.name == string(name) {
			return c
		}
	}
	return nil
}

// forget clears what an earlier member of the same name has set.
func (m *member) forget(fields []Field) {
	if m.slot >= 0 {
		fields[m.slot] = Field{}
	}
	for _, c := range m.children {
		c.forget(fields)
	}
}

// Decode implements [Decoder].
func (d *JSON) Decode(value []byte, fields []Field) error {
	if !utf8.Valid(value) {
		return errUTF8
	}
	clear(fields)
	d.value, d.at, d.fields, d.scratch = value, 0, fields, d.scratch[:0]
	d.space()
	object := d.at < len(value) && value[d.at] == '{'
	if err := d.any(d.root, 0); err != nil {
		return err
	}
	if d.space(); d.at != len(value) {
		return d.bad("text after the value")
	}
	if d.root != nil && !object {
		return Undecodable(ReasonObject, "fields are asked for, but the value is no object")
	}
	return nil
}

func (d *JSON) bad(what string) error {
	return Undecodable(ReasonJSON, "%s at byte %d", what, d.at)
}

func (d *JSON) space() {
	for d.at < len(d.value) {
		switch d.value[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

// next returns the next byte, 0 at the end; a real 0 is no JSON outside of strings, and not allowed inside either.
func (d *JSON) next() byte {
	if d.at < len(d.value) {
		return d.value[d.at]
	}
	return 0
}

// any reads a value inside of depth others; m says what is asked for of it, nil for nothing.
func (d *JSON) any(m *member, depth int) error {
	var f Field
	var err error
	start := d.at
	switch c := d.next(); {
	case (c == '{' || c == '[') && depth == maxDepth:
		return d.bad("too deep a nesting")
	case c == '{':
		f.Kind = Composite
		err = d.object(m, depth+1)
	case c == '[':
		f.Kind = Composite
		err = d.array(depth + 1)
	case c == '"':
		f.Kind = Quoted
		f.Data, err = d.text()
	case c == '-' || c >= '0' && c <= '9':
		f.Kind = Number
		err = d.number()
		f.Data = d.value[start:d.at]
	case c == 't':
		f.Kind = Boolean
		f.Data, err = d.word("true")
	case c == 'f':
		f.Kind = Boolean
		f.Data, err = d.word("false")
	case c == 'n':
		_, err = d.word("null")
	default:
		return d.bad("no value")
	}
	if m != nil && m.slot >= 0 {
		if f.Kind == Composite {
			f.Data = d.value[start:d.at]
		}
		d.fields[m.slot] = f
	}
	return err
}

func (d *JSON) object(m *member, depth int) error {
	d.at++
	if d.space(); d.next() == '}' {
		d.at++
		return nil
	}
	for {
		if d.space(); d.next() != '"' {
			return d.bad("no member")
		}
		name, err := d.text()
		if err != nil {
			return err
		}
		if d.space(); d.next() != ':' {
			return d.bad("no colon after a name")
		}
		d.at++
		d.space()
		want := m.child(name)
		if want != nil {
			want.forget(d.fields)
		}
		if err := d.any(want, depth); err != nil {
			return err
		}
		d.space()
		switch d.next() {
		case ',':
			d.at++
		case '}':
			d.at++
			return nil
		default:
			return d.bad("neither comma nor end of an object")
		}
	}
}

func (d *JSON) array(depth int) error {
	d.at++
	if d.space(); d.next() == ']' {
		d.at++
		return nil
	}
	for {
		d.space()
		if err := d.any(nil, depth); err != nil {
			return err
		}
		d.space()
		switch d.next() {
		case ',':
			d.at++
		case ']':
			d.at++
			return nil
		default:
			return d.bad("neither comma nor end of an array")
		}
	}
}

func (d *JSON) word(w string) ([]byte, error) {
	if len(d.value)-d.at < len(w) || string(d.value[d.at:d.at+len(w)]) != w {
		return nil, d.bad("no value")
	}
	d.at += len(w)
	return d.value[d.at-len(w) : d.at], nil
}

func (d *JSON) digits() bool {
	start := d.at
	for c := d.next(); c >= '0' && c <= '9'; c = d.next() {
		d.at++
	}
	return d.at > start
}

func (d *JSON) number() error {
	if d.next() == '-' {
		d.at++
	}
	if d.next() == '0' {
		d.at++
	} else if !d.digits() {
		return d.bad("no digit")
	}
	if d.next() == '.' {
		d.at++
		if !d.digits() {
			return d.bad("no digit after the point")
		}
	}
	if c := d.next(); c == 'e' || c == 'E' {
		d.at++
		if c := d.next(); c == '+' || c == '-' {
			d.at++
		}
		if !d.digits() {
			return d.bad("no digit in the exponent")
		}
	}
	return nil
}

// text reads a string and returns what it stands for: bytes of the value where they can be used as they are.
func (d *JSON) text() ([]byte, error) {
	d.at++
	start := d.at
	for d.at < len(d.value) {
		switch c := d.value[d.at]; {
		case c == '"':
			d.at++
			return d.value[start : d.at-1], nil
		case c == '\\':
			return d.escaped(start)
		case c < ' ':
			return nil, d.bad("a control character in a string")
		}
		d.at++
	}
	return nil, d.bad("a string without an end")
}

// escaped goes on with a string that has an escape.
func (d *JSON) escaped(start int) ([]byte, error) {
	from := len(d.scratch)
	d.scratch = append(d.scratch, d.value[start:d.at]...)
	for d.at < len(d.value) {
		c := d.value[d.at]
		switch {
		case c == '"':
			d.at++
			return d.scratch[from:], nil
		case c < ' ':
			return nil, d.bad("a control character in a string")
		case c != '\\':
			d.scratch = append(d.scratch, c)
			d.at++
			continue
		}
		d.at++
		switch c := d.next(); c {
		case '"', '\\', '/':
			d.scratch = append(d.scratch, c)
		case 'b':
			d.scratch = append(d.scratch, '\b')
		case 'f':
			d.scratch = append(d.scratch, '\f')
		case 'n':
			d.scratch = append(d.scratch, '\n')
		case 'r':
			d.scratch = append(d.scratch, '\r')
		case 't':
			d.scratch = append(d.scratch, '\t')
		case 'u':
			r, ok := d.hex(d.at + 1)
			if !ok {
				return nil, d.bad("no four hexadecimal digits")
			}
			d.at += 4
			d.scratch = utf8.AppendRune(d.scratch, d.pair(r))
		default:
			return nil, d.bad("an unknown escape")
		}
		d.at++
	}
	return nil, d.bad("a string without an end")
}

// pair completes a surrogate; one without its other half becomes U+FFFD, as in encoding/json. d.at is at the last digit.
func (d *JSON) pair(r rune) rune {
	if !utf16.IsSurrogate(r) {
		return r
	}
	if d.at+2 < len(d.value) && d.value[d.at+1] == '\\' && d.value[d.at+2] == 'u' {
		if low, ok := d.hex(d.at + 3); ok {
			if whole := utf16.DecodeRune(r, low); whole != utf8.RuneError {
				d.at += 6
				return whole
			}
		}
	}
	return utf8.RuneError
}

func (d *JSON) hex(at int) (rune, bool) {
	if at+4 > len(d.value) {
		return 0, false
	}
	var r rune
	for _, c := range d.value[at : at+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// AppendString appends s, which is UTF-8, as a JSON string.
func AppendString(b, s []byte) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	done := 0
	for i, c := range s {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[done:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		done = i + 1
	}
	return append(append(b, s[done:]...), '"')
}

// AppendBase64 appends data as a JSON string of base64.
func AppendBase64[T ~string | ~[]byte](b []byte, data T) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, []byte(data))
	return append(b, '"')
}
