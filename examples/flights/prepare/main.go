// Command prepare makes flights.csv.gz of the flights of nycflights13:
//
//	prepare flights.csv flights.csv.gz
//
// The input is flights.csv, plain or gzip, with a header line; a missing value is NA or empty. The output has the columns
// of package flights, without a header line, ordered by event time; flights of equal time keep their order.
package main

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "prepare:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	if len(args) != 2 {
		return errors.New("want two arguments: input and output")
	}
	in, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	rows, err := read(in)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return int(a.time - b.time) })
	out, err := os.Create(args[1])
	if err != nil {
		return err
	}
	return errors.Join(write(out, rows), out.Close())
}

type row struct {
	time   int64 // Unix seconds
	fields []string
}

var columns = []string{"carrier", "flight", "tailnum", "origin", "dest", "dep_delay"}

func read(in io.Reader) ([]row, error) {
	buffered := bufio.NewReader(in)
	if magic, err := buffered.Peek(2); err == nil && string(magic) == "\x1f\x8b" {
		zip, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		buffered = bufio.NewReader(zip)
	}
	r := csv.NewReader(buffered)
	header, err := r.Read()
	if err != nil {
		return nil, err
	}
	hour, minute := slices.Index(header, "time_hour"), slices.Index(header, "minute")
	at := make([]int, len(columns))
	for i, c := range columns {
		at[i] = slices.Index(header, c)
	}
	if hour < 0 || minute < 0 || slices.Contains(at, -1) {
		return nil, fmt.Errorf("columns %s: want time_hour, minute, %s", strings.Join(header, ", "), strings.Join(columns, ", "))
	}
	var rows []row
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		h, err := time.Parse(time.RFC3339, fields[hour])
		if err != nil {
			return nil, err
		}
		m, err := strconv.ParseInt(fields[minute], 10, 64)
		if err != nil {
			return nil, err
		}
		out := row{time: h.Unix() + 60*m}
		for _, i := range at {
			v := fields[i]
			if v == "NA" {
				v = ""
			}
			out.fields = append(out.fields, v)
		}
		rows = append(rows, out)
	}
}

func write(out io.Writer, rows []row) error {
	zip, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := csv.NewWriter(zip)
	for _, r := range rows {
		if err := w.Write(append([]string{strconv.FormatInt(r.time*1000, 10)}, r.fields...)); err != nil {
			return err
		}
	}
	w.Flush()
	return errors.Join(w.Error(), zip.Close())
}
