package flights

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Count is the number of flights.
const Count = 336_776

//go:embed flights.csv.gz
var compressed []byte

// columns of a row, in order.
var columns = []string{"event_time", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay"}

// Columns are the names of the columns of a row, in order.
func Columns() []string { return slices.Clone(columns) }

// Row is one flight.
type Row struct {
	// Number counts the flights from 1, in the order of their event times.
	Number int
	// EventTime is the scheduled departure in Unix milliseconds, UTC.
	EventTime int64
	// Carrier is the airline, two characters.
	Carrier string
	// Flight is the flight number.
	Flight string
	// Tailnum is the aircraft; empty in 2,512 rows.
	Tailnum string
	// Origin and Dest are airports, three characters.
	Origin, Dest string
	// DepDelay is the delay of the departure in minutes, negative when it was early; empty for the 8,255 flights that
	// never departed.
	DepDelay string

	line string
}

// Value is the row as a CSV record of [Columns], the value of a record in a topic. The slice is the caller's.
func (r Row) Value() []byte { return []byte(r.line) }

// Object is the row as a table of views in format csv has it: the columns that are not empty, by name.
func (r Row) Object() map[string]string {
	o := make(map[string]string, len(columns))
	for i, v := range strings.Split(r.line, ",") {
		if v != "" {
			o[columns[i]] = v
		}
	}
	return o
}

// Delay is DepDelay as a number; ok is false when the row has none.
func (r Row) Delay() (minutes int64, ok bool, err error) {
	if r.DepDelay == "" {
		return 0, false, nil
	}
	minutes, err = strconv.ParseInt(r.DepDelay, 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("row %d: delay: %w", r.Number, err)
	}
	return minutes, true, nil
}

// CSV returns the flights as CSV without a header line, to be read with [Columns].
func CSV() (io.ReadCloser, error) { return gzip.NewReader(bytes.NewReader(compressed)) }

// Rows yields the flights in the order of their event times. They are unpacked on the way; no error is expected, since
// they are part of the program.
func Rows() iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		data, err := CSV()
		if err != nil {
			yield(Row{}, err)
			return
		}
		lines := bufio.NewScanner(data)
		for n := 1; lines.Scan(); n++ {
			row, err := parse(n, lines.Text())
			if err != nil {
				yield(Row{}, err)
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

// parse reads a line. No field needs quotes, so that a comma is the end of a field.
func parse(n int, line string) (Row, error) {
	var f [7]string
	rest := line
	for i := range f {
		var more bool
		if f[i], rest, more = strings.Cut(rest, ","); more != (i < len(f)-1) {
			return Row{}, fmt.Errorf("row %d: want %d columns", n, len(f))
		}
	}
	at, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil {
		return Row{}, fmt.Errorf("row %d: event time: %w", n, err)
	}
	return Row{
		Number: n, EventTime: at, Carrier: f[1], Flight: f[2], Tailnum: f[3], Origin: f[4], Dest: f[5],
		DepDelay: f[6], line: line,
	}, nil
}
