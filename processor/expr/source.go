package expr

import (
	"strings"
	"unicode/utf8"
)

// Source is the text of an expression and where it stands.
type Source struct {
	// File names the configuration file in errors.
	File string
	// Line and Column are where the text begins in the file, counted from 1, in characters. With a Document they are those of a
	// scalar in YAML: of its first character, quote, or block indicator, or of the tag or anchor before it.
	Line, Column int
	// Text of the expression; with a Document, the value of the scalar.
	Text string
	// Document is the whole YAML file. It makes places right in quoted scalars, with their escapes, and in those of several
	// lines. Without it the text stands in the file as it is.
	Document []byte
}

// place is a line and a column, from 1.
type place struct{ line, column int }

// places returns where each character of the text stands in the file, and one more for its end.
func (s Source) places() []place {
	if s.Document != nil {
		if p, ok := scalarPlaces(s); ok {
			return p
		}
	}
	at := place{max(s.Line, 1), max(s.Column, 1)}
	if s.Document != nil { // not the scalar's value after all: its beginning is all that is known
		p := make([]place, utf8.RuneCountInString(s.Text)+1)
		for i := range p {
			p[i] = at
		}
		return p
	}
	p := make([]place, 0, len(s.Text)+1)
	for _, r := range s.Text {
		p = append(p, at)
		if at.column++; r == '\n' {
			at = place{at.line + 1, 1}
		}
	}
	return append(p, at)
}

// scalarPlaces lines the characters of a scalar's value up with those of the document. Folding, indentation and chomping
// change white space only: all other characters stand in the file in their order, each as itself or as an escape.
func scalarPlaces(s Source) ([]place, bool) {
	sc, ok := newScanner(s.Document, s.Line, s.Column)
	if !ok {
		return nil, false
	}
	p := make([]place, 0, len(s.Text)+1)
	for _, r := range s.Text {
		if isSpace(r) {
			p = append(p, sc.here)
			continue
		}
		got, at, ok := sc.next()
		if !ok || got != r {
			return nil, false
		}
		p = append(p, at)
	}
	return append(p, sc.here), true
}

// isSpace reports what YAML takes for white space or a line break.
func isSpace(r rune) bool { return r == ' ' || r == '\t' || isBreak(r) }

func isBreak(r rune) bool {
	return r == '\n' || r == '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029'
}

// style is how a scalar is written.
type style uint8

const (
	plain style = iota // and blocks: every character is itself
	single
	double
)

// scanner walks over the characters of a scalar.
type scanner struct {
	text  []rune
	i     int
	at    place // of text[i]
	here  place // behind the last character that next returned
	style style
}

// newScanner stands at the first character of the scalar's content.
func newScanner(document []byte, line, column int) (*scanner, bool) {
	sc := &scanner{text: []rune(strings.TrimPrefix(string(document), "\ufeff")), at: place{1, 1}}
	for sc.i < len(sc.text) && (sc.at.line < line || sc.at.line == line && sc.at.column < column) {
		sc.step()
	}
	if sc.at != (place{line, column}) {
		return nil, false
	}
	for c := sc.peek(); c == '!' || c == '&'; c = sc.peek() { // tag, anchor
		for sc.i < len(sc.text) && !isSpace(sc.peek()) {
			sc.step()
		}
		for sc.i < len(sc.text) && isSpace(sc.peek()) {
			sc.step()
		}
	}
	switch sc.peek() {
	case '\'':
		sc.style = single
		sc.step()
	case '"':
		sc.style = double
		sc.step()
	case '|', '>':
		for sc.i < len(sc.text) && !isBreak(sc.peek()) {
			sc.step()
		}
	}
	sc.here = sc.at
	return sc, true
}

func (s *scanner) peek() rune {
	if s.i < len(s.text) {
		return s.text[s.i]
	}
	return 0
}

// step goes to the next character.
func (s *scanner) step() {
	r := s.text[s.i]
	s.i++
	if r == '\r' && s.peek() == '\n' { // the pair is one break
		return
	}
	if s.at.column++; isBreak(r) {
		s.at = place{s.at.line + 1, 1}
	}
}

// next returns the next character of the content that is no white space, and where it is written.
func (s *scanner) next() (rune, place, bool) {
	for s.i < len(s.text) {
		at, r := s.at, s.peek()
		s.step()
		switch {
		case s.style == single && r == '\'':
			if s.peek() != '\'' {
				return 0, at, false // the end
			}
			s.step()
		case s.style == double && r == '"':
			return 0, at, false
		case s.style == double && r == '\\':
			r = s.escape()
		}
		if !isSpace(r) {
			s.here = s.at
			return r, at, true
		}
	}
	return 0, s.at, false
}

// escape reads what follows a backslash. A line that goes on is white space.
func (s *scanner) escape() rune {
	c := s.peek()
	if s.i < len(s.text) {
		s.step()
	}
	var digits int
	switch c {
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		if r, ok := escapes[c]; ok {
			return r
		}
		return c
	}
	var r rune
	for range digits {
		r = r<<4 | hexDigit(s.peek())
		if s.i < len(s.text) {
			s.step()
		}
	}
	return r
}

var escapes = map[rune]rune{
	'0': 0, 'a': '\a', 'b': '\b', 't': '\t', 'n': '\n', 'v': '\v', 'f': '\f', 'r': '\r', 'e': 0x1b, 'N': '\u0085', '_': '\u00a0',
	'L': '\u2028', 'P': '\u2029',
}

func hexDigit(c rune) rune {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	default:
		return 0
	}
}
