package feed

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Format says how rows are read and what a record is made of.
type Format struct {
	// Input is "csv" (with a header line, or Columns) or "json" (one object per line).
	Input string
	// Value is what the record's value is: "csv" (the row without header) or "json" (an object by column name).
	// Empty: as the input.
	Value string
	// Columns names the columns of a CSV without a header line.
	Columns []string
	// Comma separates the columns; 0 is ','.
	Comma rune
	// Key names the fields that make the key, joined by KeySeparator. Empty: no key. A row whose key fields are all
	// empty or absent has no key.
	Key []string
	// KeySeparator joins several key fields.
	KeySeparator string
	// Timestamp names the field that holds the event time: Unix milliseconds or RFC 3339. Empty: the time of producing.
	Timestamp string
}

// Row is one record to produce.
type Row struct {
	// Line of the input, from 1.
	Line int
	// Key is nil when the row has none.
	Key   []byte
	Value []byte
	// Timestamp is zero when the format names no field.
	Timestamp time.Time
}

// Validate reports everything that is wrong with the format.
func (f Format) Validate() error {
	var errs []error
	if f.Input != "csv" && f.Input != "json" {
		errs = append(errs, fmt.Errorf("input format %q: want csv or json", f.Input))
	}
	switch {
	case f.Value != "" && f.Value != "csv" && f.Value != "json":
		errs = append(errs, fmt.Errorf("value format %q: want csv or json", f.Value))
	case f.Input == "json" && f.Value == "csv":
		errs = append(errs, errors.New("value format csv: JSON objects have no order of columns; only CSV input can be written as CSV"))
	}
	if f.Input == "json" && len(f.Columns) > 0 {
		errs = append(errs, errors.New("columns: JSON lines name their own fields"))
	}
	return errors.Join(errs...)
}

// Rows yields the rows of r. The first error ends it; its text has the line.
func Rows(r io.Reader, f Format) iter.Seq2[Row, error] {
	if f.Input == "json" {
		return jsonRows(r, f)
	}
	return csvRows(r, f)
}

func csvRows(r io.Reader, f Format) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		in, err := newCSVReader(r, f)
		for err == nil {
			var row Row
			if row, err = in.next(); err == nil && !yield(row, nil) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(Row{}, err)
		}
	}
}

// csvReader makes rows of CSV.
type csvReader struct {
	format Format
	csv    *csv.Reader
	at     places
	value  func(fields []string) ([]byte, error)
}

func newCSVReader(r io.Reader, f Format) (*csvReader, error) {
	in := &csvReader{format: f, csv: csv.NewReader(r)}
	in.csv.ReuseRecord = true
	if f.Comma != 0 {
		in.csv.Comma = f.Comma
	}
	columns := f.Columns
	if len(columns) == 0 {
		header, err := in.csv.Read()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("line 1: empty input, want a header line with the names of the columns")
		}
		if err != nil {
			return nil, err
		}
		columns = slices.Clone(header)
		columns[0] = strings.TrimPrefix(columns[0], "\ufeff") // spreadsheets write a byte order mark
	}
	in.csv.FieldsPerRecord = len(columns)
	in.value = newCSVValue(f, columns)
	var err error
	in.at, err = f.places(columns)
	return in, err
}

// next returns the next row, io.EOF behind the last.
func (in *csvReader) next() (Row, error) {
	fields, err := in.csv.Read()
	if err != nil {
		return Row{}, err
	}
	line, _ := in.csv.FieldPos(0)
	row := Row{Line: line}
	keys := make([]string, len(in.at.key))
	for i, c := range in.at.key {
		keys[i] = fields[c]
	}
	row.Key = in.format.joinKey(keys)
	if in.at.timestamp >= 0 {
		if row.Timestamp, err = parseTime(fields[in.at.timestamp]); err != nil {
			return Row{}, fmt.Errorf("line %d: column %s: %w", line, in.format.Timestamp, err)
		}
	}
	if row.Value, err = in.value(fields); err != nil {
		return Row{}, fmt.Errorf("line %d: %w", line, err)
	}
	return row, nil
}

// places are the columns that key and timestamp come from.
type places struct {
	key       []int
	timestamp int // -1: none
}

func (f Format) places(columns []string) (places, error) {
	at := places{timestamp: -1}
	var errs []error
	find := func(what, name string) int {
		i := slices.Index(columns, name)
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s %q: no such column; there are %s", what, name, strings.Join(columns, ", ")))
		}
		return i
	}
	for _, k := range f.Key {
		at.key = append(at.key, find("key", k))
	}
	if f.Timestamp != "" {
		at.timestamp = find("timestamp", f.Timestamp)
	}
	return at, errors.Join(errs...)
}

// newCSVValue returns what makes a record's value of a row.
func newCSVValue(f Format, columns []string) func([]string) ([]byte, error) {
	if f.Value == "json" {
		return func(fields []string) ([]byte, error) {
			obj := make(map[string]json.RawMessage, len(fields))
			for i, v := range fields {
				if v == "" {
					continue // a cell without text is no value, as in a view of format csv
				}
				member, err := jsonValue(v)
				if err != nil {
					return nil, err
				}
				obj[columns[i]] = member
			}
			return json.Marshal(obj)
		}
	}
	return func(fields []string) ([]byte, error) {
		var buf bytes.Buffer
		w := csv.NewWriter(&buf)
		if f.Comma != 0 {
			w.Comma = f.Comma
		}
		if err := w.Write(fields); err != nil {
			return nil, err
		}
		w.Flush()
		return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), w.Error()
	}
}

// jsonValue is a cell as JSON: what is a JSON number as it stands becomes one, digit for digit, all else a string ("007"
// and "+1" too). Views take numbers from JSON numbers alone.
func jsonValue(cell string) (json.RawMessage, error) {
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	if (cell[0] == '-' || digit(cell[0])) && digit(cell[len(cell)-1]) && json.Valid([]byte(cell)) {
		return json.RawMessage(cell), nil
	}
	return json.Marshal(cell)
}

// maxLine is the longest JSON line that is read: above it the record would not fit into a topic anyway.
const maxLine = 64 << 20

func jsonRows(r io.Reader, f Format) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		sc := bufio.NewScanner(r)
		sc.Buffer(make([]byte, 0, 64<<10), maxLine)
		for line := 1; sc.Scan(); line++ {
			text := bytes.TrimSpace(sc.Bytes())
			if len(text) == 0 {
				continue
			}
			row, err := f.jsonRow(text)
			if err != nil {
				yield(Row{}, fmt.Errorf("line %d: %w", line, err))
				return
			}
			row.Line = line
			if !yield(row, nil) {
				return
			}
		}
		if err := sc.Err(); err != nil {
			yield(Row{}, err)
		}
	}
}

func (f Format) jsonRow(text []byte) (Row, error) {
	var obj map[string]json.RawMessage
	if err := json.Unmarshal(text, &obj); err != nil {
		return Row{}, fmt.Errorf("no JSON object: %w", err)
	}
	row := Row{Value: bytes.Clone(text)}
	keys := make([]string, len(f.Key))
	for i, k := range f.Key {
		s, err := scalar(obj[k])
		if err != nil {
			return Row{}, fmt.Errorf("key %q: %w", k, err)
		}
		keys[i] = s
	}
	row.Key = f.joinKey(keys)
	if f.Timestamp != "" {
		s, err := scalar(obj[f.Timestamp])
		if err == nil {
			row.Timestamp, err = parseTime(s)
		}
		if err != nil {
			return Row{}, fmt.Errorf("field %s: %w", f.Timestamp, err)
		}
	}
	return row, nil
}

// scalar is the text of a JSON string, number or boolean; absent and null are empty.
func scalar(raw json.RawMessage) (string, error) {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "", nil
	case raw[0] == '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case raw[0] == '{' || raw[0] == '[':
		return "", errors.New("want a string, number or boolean, not an object or array")
	default:
		return string(raw), nil
	}
}

// joinKey returns nil when no field has a value: such a record belongs to no key.
func (f Format) joinKey(fields []string) []byte {
	if !slices.ContainsFunc(fields, func(s string) bool { return s != "" }) {
		return nil
	}
	return []byte(strings.Join(fields, f.KeySeparator))
}

func parseTime(s string) (time.Time, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.UnixMilli(ms), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither Unix milliseconds nor RFC 3339", s)
	}
	return t, nil
}
