package decode

import (
	"bytes"
	"unicode/utf8"
)

// CSV reads one CSV record per value, as encoding/csv does with its defaults: commas, fields that may be quoted,
// quotes inside doubled. A line break at the end is allowed. Unlike there, a line break inside quotes is kept as it is,
// and an empty value is a record of one empty field.
type CSV struct {
	columns int
	slots   []int    // by column: index into fields, -1 when nobody asks
	names   [][]byte // by column: `"name":` as JSON
	scratch []byte   // of unquoted fields of the record in hand
}

// NewCSV returns a decoder of records with these columns, for the named ones.
func NewCSV(columns, names []string) *CSV {
	d := &CSV{columns: len(columns), slots: make([]int, len(columns)), names: make([][]byte, len(columns))}
	for i, c := range columns {
		d.names[i] = append(AppendString(nil, []byte(c)), ':')
		d.slots[i] = -1
		for j, n := range names {
			if n == c {
				d.slots[i] = j
			}
		}
	}
	return d
}

// Decode implements [Decoder].
func (d *CSV) Decode(value []byte, fields []Field) error {
	clear(fields)
	return d.each(value, func(column int, data []byte) {
		if slot := d.slots[column]; slot >= 0 && len(data) > 0 {
			fields[slot] = Field{Kind: Plain, Data: data}
		}
	})
}

// AppendObject appends the record as a JSON object: every column that is not empty, in order, as a string.
func (d *CSV) AppendObject(b, value []byte) ([]byte, error) {
	b = append(b, '{')
	open := len(b)
	err := d.each(value, func(column int, data []byte) {
		if len(data) == 0 {
			return
		}
		if len(b) > open {
			b = append(b, ',')
		}
		b = append(b, d.names[column]...)
		b = AppendString(b, data)
	})
	return append(b, '}'), err
}

// each hands the fields of a record to fn, in order.
func (d *CSV) each(value []byte, fn func(column int, data []byte)) error {
	if !utf8.Valid(value) {
		return errUTF8
	}
	rest := value
	if n := len(rest); n > 0 && rest[n-1] == '\n' {
		rest = rest[:n-1]
		if n > 1 && rest[n-2] == '\r' {
			rest = rest[:n-2]
		}
	}
	d.scratch = d.scratch[:0]
	for column := 0; ; column++ {
		data, after, err := d.field(rest)
		if err != nil {
			return err
		}
		if column >= d.columns {
			return Undecodable(ReasonColumns, "more than the %d columns", d.columns)
		}
		fn(column, data)
		if after < 0 {
			if column+1 != d.columns {
				return Undecodable(ReasonColumns, "%d columns, want %d", column+1, d.columns)
			}
			return nil
		}
		rest = rest[after:]
	}
}

// field reads the first field of rest; after is where the next one starts, -1 when there is none.
func (d *CSV) field(rest []byte) (data []byte, after int, err error) {
	if len(rest) > 0 && rest[0] == '"' {
		return d.quoted(rest)
	}
	end, after := bytes.IndexByte(rest, ','), -1
	if end < 0 {
		end = len(rest)
	} else {
		after = end + 1
	}
	data = rest[:end]
	switch {
	case bytes.IndexByte(data, '"') >= 0:
		return nil, 0, Undecodable(ReasonCSV, "a quote inside a field that is not quoted")
	case bytes.IndexByte(data, '\n') >= 0:
		return nil, 0, Undecodable(ReasonCSV, "a line break outside of quotes")
	}
	return data, after, nil
}

// quoted reads a field that starts with a quote.
func (d *CSV) quoted(rest []byte) (data []byte, after int, err error) {
	start := len(d.scratch)
	at := 1
	for {
		end := bytes.IndexByte(rest[at:], '"')
		if end < 0 {
			return nil, 0, Undecodable(ReasonCSV, "a quoted field without an end")
		}
		end += at
		d.scratch = append(d.scratch, rest[at:end]...)
		at = end + 1
		switch {
		case at == len(rest):
			return d.scratch[start:], -1, nil
		case rest[at] == ',':
			return d.scratch[start:], at + 1, nil
		case rest[at] != '"':
			return nil, 0, Undecodable(ReasonCSV, "text after a quoted field")
		}
		d.scratch = append(d.scratch, '"')
		at++
	}
}
