package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// answerRow is a key with its value and what it is worth.
type answerRow struct {
	Key       json.RawMessage `json:"key"`
	Found     bool            `json:"found"`
	Start     string          `json:"start,omitempty"` // RFC 3339, like End: of windows, sessions, versions
	End       string          `json:"end,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
	Timestamp *int64          `json:"timestamp,omitempty"` // Unix milliseconds
	Partition int32           `json:"partition"`
	Role      string          `json:"role"`
	AgeMillis float64         `json:"age_ms"`
	Answered  string          `json:"answered_by"`
	Epoch     int64           `json:"epoch"`
	Isolation string          `json:"isolation"`
	Token     []byte          `json:"token,omitempty"` // base64
	Partial   *partialState   `json:"partial,omitempty"`
}

// partialState says how far the copy is that answered while it is being restored. The age is -1 when nothing is proven.
type partialState struct {
	Restored   int64  `json:"restored"`
	Total      int64  `json:"total"`
	LeftMillis int64  `json:"left_ms,omitempty"` // 0 when unknown
	StreamTime *int64 `json:"stream_time,omitempty"`
}

func newAnswerRow(info router.StoreInfo, key shown, v *store.Value, span client.Span, p store.Partition, a client.Answer) answerRow {
	r := answerRow{
		Key: key.json, Partition: int32(p), Role: a.Facts.Role.String(), AgeMillis: millis(a.Facts.Age), Answered: a.Endpoint,
		Epoch: int64(a.Epoch), Isolation: a.Facts.Isolation.String(), Token: client.EncodeToken(info.Name, a.Facts.Token),
	}
	if p := a.Facts.Partial; p != nil {
		r.Partial = &partialState{Restored: p.Restored, Total: p.Total, LeftMillis: p.Left.Milliseconds()}
		if p.StreamTime >= 0 {
			r.Partial.StreamTime = &p.StreamTime
		}
	}
	if a.Facts.Age < 0 {
		r.AgeMillis = -1
	}
	if v != nil {
		r.Found, r.Value = true, show(v.Data, info.ValueFormat).json
		r.Start, r.End = showSpan(span)
		if v.Timestamp >= 0 {
			r.Timestamp = &v.Timestamp
		}
	}
	return r
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

type keyFlags struct{ form string }

func (k *keyFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&k.form, "key-type", "", "how the key is typed: "+strings.Join(keyForms, ", ")+" (default as the store declares)")
	_ = cmd.RegisterFlagCompletionFunc("key-type", cobra.FixedCompletions(keyForms, cobra.ShellCompDirectiveNoFileComp))
}

// parse reads a key for a store.
func (k *keyFlags) parse(text string, info router.StoreInfo) ([]byte, error) {
	form := k.form
	if form == "" {
		form = info.KeyFormat
	}
	return parseKey(text, form)
}

// storeInfo looks a store up in the map.
func (s *session) storeInfo(ctx context.Context, name string) (router.StoreInfo, error) {
	m, err := s.Metadata(ctx)
	if err != nil {
		return router.StoreInfo{}, err
	}
	return m.Store(store.Name(name))
}

func newGetCommand(p Process) *cobra.Command {
	var ask askFlags
	var read readFlags
	var keys keyFlags
	cmd := &cobra.Command{
		Use:     "get STORE KEY",
		GroupID: groupAsk,
		Short:   "Read the value of one key",
		Long: `Read the value of one key, in a versioned store the latest. The value alone is printed; -o json also tells
which partition it is in, who answered and how old the answer is. A key that has no value exits with 3.`,
		Example: `  statemesh get flights_by_dest ATL
  statemesh get flights_by_dest ATL --addr 127.0.0.1:7071 -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := newPrinter(cmd)
			if err != nil {
				return err
			}
			return ask.run(cmd, p, func(ctx context.Context, s *session) error {
				if err := read.apply(s, args[0]); err != nil {
					return err
				}
				info, err := s.storeInfo(ctx, args[0])
				if err != nil {
					return err
				}
				key, err := keys.parse(args[1], info)
				if err != nil {
					return err
				}
				r, err := s.Get(ctx, info.Name, key, s.opts...)
				return writePoint(out, info, key, r, err)
			})
		},
	}
	ask.add(cmd)
	read.add(cmd)
	keys.add(cmd)
	return cmd
}

// writePoint writes one value, alone, or as JSON with what it is worth.
func writePoint(out *printer, info router.StoreInfo, key []byte, r client.Result, err error) error {
	value := &r.Value
	if err != nil {
		if !errors.Is(err, store.ErrNotFound) || !out.json() {
			return err
		}
		value = nil
	}
	row := newAnswerRow(info, show(key, info.KeyFormat), value, r.Span, r.Answer.Partition, r.Answer)
	if value != nil && !out.json() {
		out.notePartial(r.Answer)
	}
	if value == nil { // the row says it; the exit code too
		return errors.Join(out.row(row), out.flush(), err)
	}
	return errors.Join(out.row(row, show(r.Value.Data, info.ValueFormat).text), out.flush())
}

// batchSize is how many keys of standard input one request carries.
const batchSize = 1000

func newMultiGetCommand(p Process) *cobra.Command {
	var ask askFlags
	var read readFlags
	var keys keyFlags
	cmd := &cobra.Command{
		Use:     "multi-get STORE [KEY...]",
		GroupID: groupAsk,
		Short:   "Read the values of many keys",
		Long: `Read the values of many keys, given as arguments or, without any, one per line on standard input. Every key gets
a row, in order; those without a value say so. Exits with 3 when no key has a value.`,
		Example: `  statemesh multi-get flights_by_carrier AA UA ZZ
  cut -d, -f1 airports.csv | statemesh multi-get flights_by_dest -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := newPrinter(cmd, "KEY", "VALUE", "PARTITION", "ROLE", "AGE", "ANSWERED BY")
			if err != nil {
				return err
			}
			texts := args[1:]
			if len(texts) == 0 {
				lines := bufio.NewScanner(p.Stdin)
				for lines.Scan() {
					texts = append(texts, lines.Text())
				}
				if err := lines.Err(); err != nil {
					return err
				}
			}
			return ask.run(cmd, p, func(ctx context.Context, s *session) error {
				if err := read.apply(s, args[0]); err != nil {
					return err
				}
				info, err := s.storeInfo(ctx, args[0])
				if err != nil {
					return err
				}
				found := 0
				for batch := range slices.Chunk(texts, batchSize) {
					n, err := s.multiGet(ctx, info, &keys, batch, out)
					if err != nil {
						return err
					}
					found += n
				}
				if err := out.flush(); err != nil || found > 0 || len(texts) == 0 {
					return err
				}
				return fmt.Errorf("store %s: none of %s: %w", info.Name, count(len(texts), "key"), store.ErrNotFound)
			})
		},
	}
	ask.add(cmd)
	read.add(cmd)
	keys.add(cmd)
	return cmd
}

func (s *session) multiGet(ctx context.Context, info router.StoreInfo, kf *keyFlags, texts []string, out *printer) (found int, err error) {
	keys := make([][]byte, len(texts))
	for i, t := range texts {
		if keys[i], err = kf.parse(t, info); err != nil {
			return 0, err
		}
	}
	results, err := s.BatchGet(ctx, info.Name, keys, s.opts...)
	if err != nil {
		return 0, err
	}
	for i, r := range results {
		value, text := &r.Value, "(none)"
		if r.Found {
			found++
			text = show(r.Value.Data, info.ValueFormat).text
		} else {
			value = nil
		}
		key := show(keys[i], info.KeyFormat)
		row := newAnswerRow(info, key, value, r.Span, r.Partition, *r.Answer)
		if !out.json() {
			out.notePartial(*r.Answer)
		}
		if err := out.row(row, key.text, text, fmt.Sprint(r.Partition), row.Role, fmt.Sprintf("%.0fms", row.AgeMillis), row.Answered); err != nil {
			return found, err
		}
	}
	return found, nil
}
