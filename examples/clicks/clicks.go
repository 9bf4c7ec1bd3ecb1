package clicks

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// Count is the number of requests.
const Count = 47_748

//go:embed clicks.csv.gz
var compressed []byte

// columns of a row, in order.
var columns = []string{"ts", "user", "page", "method", "type", "status", "bytes", "seq"}

// Columns are the names of the columns of a row, in order.
func Columns() []string { return slices.Clone(columns) }

// Row is one request.
type Row struct {
	// EventTime is the time of the request in Unix milliseconds.
	EventTime int64
	// User is the client host, Page what it asked for, Type what that is.
	User, Page, Type string

	line string
}

// Value is the row as a CSV record of [Columns], the value of a record in a topic. The slice is the caller's.
func (r Row) Value() []byte { return []byte(r.line) }

// Rows yields the requests in the order of their times. No error is expected, since they are part of the program.
func Rows() iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		data, err := gzip.NewReader(bytes.NewReader(compressed))
		if err != nil {
			yield(Row{}, err)
			return
		}
		lines := bufio.NewScanner(data)
		for n := 0; lines.Scan(); n++ {
			if n == 0 {
				continue // the header
			}
			row, err := parse(lines.Text())
			if err != nil {
				yield(Row{}, fmt.Errorf("row %d: %w", n, err))
				return
			}
			if !yield(row, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Row{}, err)
		}
	}
}

// parse reads a line: no field holds a line break.
func parse(line string) (Row, error) {
	in := csv.NewReader(strings.NewReader(line))
	in.FieldsPerRecord = len(columns)
	f, err := in.Read()
	if err != nil {
		return Row{}, err
	}
	at, err := time.Parse(time.RFC3339, f[0])
	if err != nil {
		return Row{}, err
	}
	return Row{EventTime: at.UnixMilli(), User: f[1], Page: f[2], Type: f[4], line: line}, nil
}
