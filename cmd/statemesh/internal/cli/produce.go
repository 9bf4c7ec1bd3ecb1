package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/cmd/statemesh/internal/feed"
	"github.com/statemesh/statemesh/internal/configfile"
	"github.com/statemesh/statemesh/processor"
)

// kafkaFlags say how to reach the brokers, for commands that need nothing else of a configuration.
type kafkaFlags struct {
	file, brokers string
	sets          []string
}

func (k *kafkaFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&k.file, "config", "c", "", "configuration file to take brokers and security from")
	cmd.Flags().StringVar(&k.brokers, "brokers", "", "brokers to ask first, host:port[,host:port] (default 127.0.0.1:9092)")
	cmd.Flags().StringArrayVar(&k.sets, "set", nil, "setting as key=value, above file and environment; may be repeated")
}

// load reads the Kafka part of the configuration.
func (k *kafkaFlags) load(env []string) (processor.KafkaConfig, error) {
	src, err := configfile.ReadFile(k.file)
	if err != nil {
		return processor.KafkaConfig{}, usageError{err}
	}
	src.Env, src.Set = env, k.sets
	if k.brokers != "" {
		src.Set = append(src.Set, "bootstrap.servers="+k.brokers)
	}
	return configfile.LoadKafka(src, "127.0.0.1:9092")
}

type produceOptions struct {
	kafka      kafkaFlags
	format     feed.Format
	topic      string
	delimiter  string
	create     bool
	partitions int32
	factor     int16
	config     map[string]string
	rate       float64
}

type produceResult struct {
	Topic      string  `json:"topic"`
	Created    bool    `json:"created"`
	Records    int64   `json:"records"`
	WithoutKey int64   `json:"without_key"`
	Seconds    float64 `json:"seconds"`
	PerSecond  float64 `json:"records_per_second"`
}

func newProduceCommand(p Process) *cobra.Command {
	var o produceOptions
	cmd := &cobra.Command{
		Use:     "produce TOPIC [FILE]",
		GroupID: groupTry,
		Short:   "Write CSV or JSON lines into a topic",
		Long: `Write the rows of a CSV or JSON lines file, or of standard input, into a topic. Each row becomes one record whose
key is one field, or several joined by --key-separator. A row whose key fields are all empty has no key.`,
		Example: `  statemesh produce flights flights.csv --key tailnum --create --partitions 4
  gunzip -c flights.csv.gz | statemesh produce flights --key carrier,origin --value json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.topic = args[0]
			in, size, err := openInput(args[1:], p.Stdin)
			if err != nil {
				return err
			}
			defer func() { _ = in.Close() }()
			return o.run(cmd, p, in, size, strings.Join(args[1:], ""))
		},
	}
	o.kafka.add(cmd)
	f := cmd.Flags()
	f.StringVar(&o.format.Input, "input", "", "csv or json (default by the file's name, else csv)")
	f.StringVar(&o.format.Value, "value", "", "form of the records' values: csv or json (default as the input); cells of a CSV that are numbers become JSON numbers")
	f.StringSliceVarP(&o.format.Key, "key", "k", nil, "field that makes the key; several are joined (default no key)")
	f.StringVar(&o.format.KeySeparator, "key-separator", "/", "what joins several key fields")
	f.StringVar(&o.format.Timestamp, "timestamp", "", "field with the event time: Unix milliseconds or RFC 3339 (default now)")
	f.StringSliceVar(&o.format.Columns, "columns", nil, "columns of a CSV without a header line")
	f.StringVar(&o.delimiter, "delimiter", ",", "what separates the columns; \\t is a tab")
	f.BoolVar(&o.create, "create", false, "create the topic if there is none")
	f.Int32Var(&o.partitions, "partitions", 1, "its partitions, with --create")
	f.Int16Var(&o.factor, "replication-factor", -1, "its replication factor, with --create; -1 is the broker's default")
	f.StringToStringVar(&o.config, "topic-config", nil, "its settings as key=value, with --create; with --timestamp retention.ms is -1 unless given, since retention counts from the event time")
	f.Float64Var(&o.rate, "rate", 0, "most records per second (default no limit)")
	outputFlag(cmd)
	return cmd
}

func (o *produceOptions) run(cmd *cobra.Command, p Process, in io.Reader, size int64, name string) error {
	ctx := cmd.Context()
	if err := o.complete(name); err != nil {
		return usageError{err}
	}
	out, err := newPrinter(cmd)
	if err != nil {
		return err
	}
	k, err := o.kafka.load(p.Env)
	if err != nil {
		return err
	}
	res := produceResult{Topic: o.topic}
	if o.create {
		if res.Created, err = feed.CreateTopic(ctx, k, o.newTopic()); err != nil {
			return err
		}
	}
	counted := &countingReader{r: in}
	prog := newProgress(cmd.ErrOrStderr(), "records", func() float64 {
		if size <= 0 {
			return -1
		}
		return float64(counted.n.Load()) / float64(size)
	})
	var wg sync.WaitGroup
	progCtx, stop := context.WithCancel(ctx)
	wg.Go(func() { prog.run(progCtx) })
	stats, err := feed.Produce(ctx, feed.Target{
		Kafka: k, Topic: o.topic, Rate: o.rate, OnRecord: func(feed.Row) { prog.done.Add(1) },
	}, feed.Rows(counted, o.format))
	stop()
	wg.Wait()
	if err != nil {
		return fmt.Errorf("%w (%s records were written before)", err, thousands(stats.Records))
	}
	res.Records, res.WithoutKey = stats.Records, stats.WithoutKey
	res.Seconds, res.PerSecond = stats.Took.Seconds(), stats.PerSecond()
	line := fmt.Sprintf("%s: %s records in %s, %s/s", o.topic, thousands(res.Records), stats.Took.Round(time.Millisecond), thousands(int64(res.PerSecond)))
	if res.WithoutKey > 0 {
		line += fmt.Sprintf("; %s without a key", thousands(res.WithoutKey))
	}
	if err := out.row(res, line); err != nil {
		return err
	}
	return out.flush()
}

// newTopic is the topic to create.
func (o *produceOptions) newTopic() feed.NewTopic {
	t := feed.NewTopic{Name: o.topic, Partitions: o.partitions, ReplicationFactor: o.factor, Config: make(map[string]string)}
	if o.format.Timestamp != "" {
		maps.Copy(t.Config, feed.KeepOld())
	}
	maps.Copy(t.Config, o.config)
	return t
}

// complete fills in what follows from other options and checks the whole.
func (o *produceOptions) complete(name string) error {
	if o.format.Input == "" {
		o.format.Input = "csv"
		switch strings.ToLower(filepath.Ext(name)) {
		case ".json", ".jsonl", ".ndjson":
			o.format.Input = "json"
		}
	}
	delim := strings.ReplaceAll(o.delimiter, `\t`, "\t")
	r, n := utf8.DecodeRuneInString(delim)
	if n == 0 || n != len(delim) || r == utf8.RuneError || r == '"' || r == '\n' || r == '\r' {
		return fmt.Errorf("--delimiter %q: want one character other than a quote or a line end", o.delimiter)
	}
	o.format.Comma = r
	var errs []error
	if o.partitions < 1 {
		errs = append(errs, fmt.Errorf("--partitions %d: want at least 1", o.partitions))
	}
	if o.rate < 0 {
		errs = append(errs, fmt.Errorf("--rate %g: want 0 for no limit, or more", o.rate))
	}
	return errors.Join(append(errs, o.format.Validate())...)
}

// openInput opens the file, or standard input for none and "-". size is 0 when it is not known.
func openInput(args []string, stdin io.Reader) (in io.ReadCloser, size int64, err error) {
	if len(args) == 0 || args[0] == "-" {
		return io.NopCloser(stdin), 0, nil
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, 0, usageError{err}
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	return f, size, nil
}

// countingReader knows how far a file has been read.
type countingReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n.Add(int64(n))
	return n, err
}
