package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
)

// maxLine bounds a line: a scan of 100,000 rows fits.
const maxLine = 64 << 20

// ErrFormat reports a file that is no history, or one of a version that is not known.
var ErrFormat = errors.New("history: malformed")

// Reader reads the events of a history.
type Reader struct {
	in   *bufio.Reader
	line int
	cut  int
}

// NewReader reads from in.
func NewReader(in io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(in, 1<<18)} }

// Cut is how many unfinished last lines were passed over: 0 or 1, once the events have been read.
func (r *Reader) Cut() int { return r.cut }

// Events yields each event once, in order; an error is the last thing it yields. It may be used once.
func (r *Reader) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			e, err := r.read()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (r *Reader) read() (Event, error) {
	line, err := r.next()
	if err != nil {
		return Event{}, err
	}
	r.line++
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return Event{}, fmt.Errorf("%w: line %d: %w", ErrFormat, r.line, err)
	}
	if err := e.valid(r.line); err != nil {
		return Event{}, fmt.Errorf("%w: line %d: %w", ErrFormat, r.line, err)
	}
	return e, nil
}

// next is the next whole line, io.EOF behind the last one.
func (r *Reader) next() ([]byte, error) {
	var long []byte
	for {
		part, err := r.in.ReadSlice('\n')
		switch {
		case err == nil && long == nil:
			return bytes.TrimSuffix(part, []byte{'\n'}), nil
		case err == nil:
			return append(long, part[:len(part)-1]...), nil
		case errors.Is(err, bufio.ErrBufferFull):
			if long = append(long, part...); len(long) > maxLine {
				return nil, fmt.Errorf("%w: line %d is longer than %d bytes", ErrFormat, r.line+1, maxLine)
			}
		case errors.Is(err, io.EOF):
			if len(long)+len(part) > 0 {
				r.cut++
			}
			if r.line == 0 {
				return nil, fmt.Errorf("%w: no header", ErrFormat)
			}
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("history: %w", err)
		}
	}
}

// valid reports whether what the kind needs is there.
func (e *Event) valid(line int) error {
	if (line == 1) != (e.Kind == KindHeader) {
		return fmt.Errorf("%q: the header is the first line, and only that", e.Kind)
	}
	need := true
	switch e.Kind {
	case KindHeader:
		if need = e.Header != nil; need && e.Header.Version != Version {
			return fmt.Errorf("version %d, want %d", e.Header.Version, Version)
		}
	case KindStore:
		if need = e.Store != nil; need && e.Store.Model != Counter && e.Store.Model != Register {
			return fmt.Errorf("model %q: want %s or %s", e.Store.Model, Counter, Register)
		}
	case KindWrite:
		need = e.Write != nil && e.ID > 0
	case KindAcked:
		need = e.Place != nil && e.Place.Offset >= 0
	case KindRead:
		need = e.Read != nil && e.ID > 0
	case KindAnswered:
		need = e.Answer != nil
	case KindFault:
		need = e.Fault != nil && e.ID > 0
	case KindFinal, KindLog:
		need = e.Row != nil
	case KindUnknown, KindRefused, KindFailed, KindMended, KindEnd:
	default:
		return fmt.Errorf("kind %q is not known", e.Kind)
	}
	if !need {
		return fmt.Errorf("%s: a field is missing or out of range", e.Kind)
	}
	return nil
}

// CheckFile judges the history in a file.
func CheckFile(path string, o CheckOptions) (*Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	defer func() { _ = f.Close() }()
	r := NewReader(f)
	report, err := Check(r.Events(), o)
	if err != nil {
		return nil, err
	}
	report.CutLines = r.Cut()
	return report, nil
}
