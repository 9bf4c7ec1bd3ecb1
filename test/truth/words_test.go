package truth

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// wordTopologies count the words of the topic "lines", each in its own way, in a store "counts", and tell each count in a topic "counts".
var wordTopologies = map[string]struct {
	build  func() (*processor.Topology, error)
	counts serde.Serde[int64]
}{
	"DSL":           {wordsInTheDSL, serde.Int64()},
	"Processor API": {wordsByProcessors, serde.Int64()},
	"config file":   {func() (*processor.Topology, error) { return declaredIn(filepath.Join("testdata", "words.yaml")) }, countObjects()},
}

// countObjects are counts as a declared table has them: {"count":1}.
func countObjects() serde.Serde[int64] {
	type row struct {
		Count int64 `json:"count"`
	}
	objects := serde.JSON[row]()
	return serde.New("count", func(dst []byte, n int64) ([]byte, error) { return objects.Append(dst, row{n}) },
		func(b []byte) (int64, error) { r, err := objects.Decode(b); return r.Count, err })
}

func wordsInTheDSL() (*processor.Topology, error) {
	b := streams.NewBuilder()
	words := streams.FlatMapValues(streams.From(b, "lines", serde.String(), serde.String()), strings.FieldsSeq)
	counts := streams.Count(streams.GroupBy(words, func(_, word string) string { return word }), "counts")
	streams.ToStream(counts).To("counts")
	return b.Build()
}

func wordsByProcessors() (*processor.Topology, error) {
	return processor.NewTopology().
		AddSource("lines", processor.SourceOptions{}, "lines").
		AddProcessor("split", func() processor.Processor { return &splitter{} }, "lines").
		AddRepartition("words", processor.RepartitionOptions{}, "split").
		AddProcessor("count", func() processor.Processor { return &wordCounter{} }, "words").
		AddStateStore(store.Spec{Name: "counts", Kind: store.KindTimestampedKeyValue}, "count").
		AddSink("out", processor.SinkOptions{}, "counts", "count"), nil
}

// splitter makes a record of each word, which is its key.
type splitter struct{ ctx *processor.Context }

func (s *splitter) Init(ctx *processor.Context) error { s.ctx = ctx; return nil }
func (s *splitter) Close() error                      { return nil }
func (s *splitter) Process(r *processor.Record) error {
	for word := range strings.FieldsSeq(string(r.Value)) {
		if err := s.ctx.Forward(processor.Record{Key: []byte(word), Value: []byte(word), Timestamp: r.Timestamp}); err != nil {
			return err
		}
	}
	return nil
}

// wordCounter counts the records of a key.
type wordCounter struct {
	ctx    *processor.Context
	counts store.KeyValue
}

func (c *wordCounter) Init(ctx *processor.Context) (err error) {
	c.ctx = ctx
	c.counts, err = ctx.Store("counts")
	return err
}

func (c *wordCounter) Close() error { return nil }

func (c *wordCounter) Process(r *processor.Record) error {
	var n uint64
	was, err := c.counts.Get(r.Key)
	if err == nil {
		n = binary.BigEndian.Uint64(was.Data)
	} else if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	now := store.Value{Data: binary.BigEndian.AppendUint64(nil, n+1), Timestamp: max(was.Timestamp, r.Timestamp)}
	if err := c.counts.Put(r.Key, now); err != nil {
		return err
	}
	return c.ctx.Forward(processor.Record{Key: r.Key, Value: now.Data, Timestamp: now.Timestamp})
}

// TestWordCount: upstream's demonstration has one answer, however the words are counted, each change and the table in the end.
func TestWordCount(t *testing.T) {
	t.Parallel()
	lines := []string{"all streams lead to kafka", "hello kafka streams", "join kafka summit"}
	changes := []string{
		"all=1@1", "streams=1@1", "lead=1@1", "to=1@1", "kafka=1@1", "hello=1@2", "kafka=2@2", "streams=2@2", "join=1@3", "kafka=3@3", "summit=1@3",
	}
	table := []string{"all=1@1", "hello=1@2", "join=1@3", "kafka=3@3", "lead=1@1", "streams=2@2", "summit=1@3", "to=1@1"}
	for name, words := range wordTopologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topology, err := words.build()
			if err != nil {
				t.Fatal(err)
			}
			d := streamstest.NewT(t, topology, streamstest.Config{})
			in := streamstest.NewInput(d, "lines", serde.String(), serde.String())
			for i, line := range lines {
				in.Pipe("", line, int64(i+1))
				if i == 1 {
					d.Restart()
				}
			}
			var told []string
			for _, r := range streamstest.NewOutput(d, "counts", serde.String(), words.counts).ReadAll() {
				told = append(told, r.String())
			}
			same(t, "changes", told, changes)
			var rows []string
			for _, r := range streamstest.NewKeyValue(d, "counts", serde.String(), words.counts).Rows() {
				rows = append(rows, r.String())
			}
			same(t, "counts", rows, table)
		})
	}
}
