package cli

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/server"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// instance is a real server over real stores, without Kafka: what the commands of an instance are tested against.
type instance struct {
	endpoint string
	stores   *layered.Stores
	tasks    []*layered.Task
	info     []router.StoreInfo
	// partial, if set, is what who accepts it is told.
	partial *store.Partial
}

const kindPartitions = 3

var kindSpecs = []store.Spec{
	{Name: "latest", Kind: store.KindTimestampedKeyValue, KeyFormat: "string", ValueFormat: "int64"},
	{
		Name: "per-hour", Kind: store.KindTimestampedWindow, WindowSize: time.Hour, Retention: 48 * time.Hour,
		KeyFormat: "string", ValueFormat: "int64",
	},
	{Name: "visits", Kind: store.KindSession, Retention: 48 * time.Hour, KeyFormat: "string", ValueFormat: "int64"},
	{Name: "prices", Kind: store.KindVersioned, Retention: 48 * time.Hour, KeyFormat: "string", ValueFormat: "int64"},
}

// Read makes it the Stores of its server.
func (in *instance) Read(_ context.Context, name store.Name, p store.Partition, o store.ReadOptions) (store.Reading, error) {
	snap, err := in.tasks[p].Snapshot()
	if err != nil {
		return nil, err
	}
	rd := &kindReading{Snapshot: snap, name: name, p: p, o: o}
	if o.Partial {
		rd.partial = in.partial
	} else if in.partial != nil {
		rd.Close()
		return nil, &store.NotReadyError{Store: name, Partition: p, Reason: "restoring", Restored: in.partial.Restored, Total: in.partial.Total, Left: in.partial.Left}
	}
	return rd, nil
}

type kindReading struct {
	*layered.Snapshot

	name store.Name
	p    store.Partition
	o    store.ReadOptions

	partial *store.Partial
}

func (r *kindReading) KeyValue() (store.KeyValueReader, error) { return r.Snapshot.KeyValue(r.name) }

func (r *kindReading) Windows() (store.WindowReader, error) { return r.Snapshot.Windows(r.name) }

func (r *kindReading) Sessions() (store.SessionReader, error) { return r.Snapshot.Sessions(r.name) }

func (r *kindReading) Versions() (store.VersionedReader, error) { return r.Snapshot.Versions(r.name) }

func (r *kindReading) Facts() store.Facts {
	if r.partial != nil {
		return store.Facts{Role: store.RoleActive, Position: store.Position{}, Age: -1, Partial: r.partial}
	}
	return store.Facts{Role: store.RoleActive, Sequence: 1, Position: store.Position{}, Token: store.Token{
		Cuts: map[store.Partition]store.Cut{r.p: {TopicID: [16]byte{1}, Next: 7}},
	}}
}

// startInstance serves the stores of kindSpecs with what fill writes into the tasks.
func startInstance(t *testing.T, fill func(in *instance)) *instance {
	t.Helper()
	return startLimited(t, 0, fill)
}

// startLimited is startInstance with a limit of rows in one stream; 0: the default.
func startLimited(t *testing.T, maxScanRows int64, fill func(in *instance)) *instance {
	t.Helper()
	stores, err := layered.Open(t.Context(), layered.Config{Dir: filepath.Join(t.TempDir(), "state"), MoveInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	in := &instance{stores: stores}
	var ids []store.TaskID
	for p := range store.Partition(kindPartitions) {
		id := store.TaskID{Partition: p}
		task, err := stores.OpenTask(t.Context(), id, kindSpecs)
		if err != nil {
			t.Fatal(err)
		}
		in.tasks, ids = append(in.tasks, task), append(ids, id)
	}
	fill(in)
	for _, task := range in.tasks {
		task.Commit(store.Checkpoint{Sequence: 1})
	}
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in.endpoint = lis.Addr().String()
	for _, s := range kindSpecs {
		in.info = append(in.info, router.StoreInfo{
			Name: s.Name, Kind: s.Kind, Partitions: kindPartitions, KeyFormat: s.KeyFormat, ValueFormat: s.ValueFormat,
			SourceTopic: "flights", Retention: s.Retention, WindowSize: s.WindowSize,
		})
	}
	snap, err := router.NewSnapshot(router.Data{
		Application: "kinds", Epoch: 1, Stores: in.info,
		Instances: []router.Instance{{ID: "a", Incarnation: "1", Endpoint: in.endpoint, Active: ids}},
	})
	if err != nil {
		t.Fatal(err)
	}
	table := router.NewTable()
	if err := table.Publish(snap); err != nil {
		t.Fatal(err)
	}
	pool := client.NewPool(client.PoolConfig{})
	srv, err := server.New(server.Config{
		Application: "kinds", Instance: "a", Endpoint: in.endpoint, Listener: lis, DefaultMaxStaleness: server.DefaultMaxStaleness,
		MaxScanRows: maxScanRows,
	}, server.Deps{Stores: in, Peers: pool, Table: table, Holdings: in.holdings})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = pool.Close()
		for _, task := range in.tasks {
			if err := task.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if err := stores.Close(); err != nil {
			t.Error(err)
		}
	})
	return in
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func hour(h int) time.Time { return time.Date(2013, 1, 1, h, 0, 0, 0, time.UTC) }

// airports fills every store: hourly windows from 05:00 to 07:00, a visit, and a latest value for each.
func airports(t *testing.T) func(*instance) {
	return func(in *instance) {
		for i, airport := range []string{"ATL", "JFK", "ORD"} {
			key := []byte(airport)
			task := in.tasks[router.PartitionFor(key, kindPartitions)]
			kv, err1 := task.KeyValue("latest")
			windows, err2 := task.Window("per-hour")
			sessions, err3 := task.Session("visits")
			versions, err4 := task.Versioned("prices")
			for _, err := range []error{err1, err2, err3, err4} {
				if err != nil {
					t.Fatal(err)
				}
			}
			put := []error{
				kv.Put(key, store.Value{Data: number(int64(i)), Timestamp: 1}),
				sessions.Put(key, hour(5).UnixMilli(), hour(6).UnixMilli()+1, store.Value{Data: number(9), Timestamp: -1}),
			}
			for h := 5; h < 8; h++ {
				put = append(put, windows.Put(key, hour(h).UnixMilli(), store.Value{Data: number(int64(10*i + h)), Timestamp: hour(h).UnixMilli() + 7}))
			}
			for h, n := range map[int]int64{5: 100, 7: 120} {
				_, err := versions.Put(key, store.Value{Data: number(n + int64(i)), Timestamp: hour(h).UnixMilli()})
				put = append(put, err)
			}
			for _, err := range put {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// runs runs a command and returns its exit code and what it wrote; words with a space are in quotes.
func (in *instance) run(t *testing.T, line string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	args := append(strings.Fields(line), "--addr", in.endpoint)
	code = Run(t.Context(), Process{Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
	return code, out.String(), errs.String()
}

// The commands over windows and sessions: what they print, for people and for programs, and their exit codes.
func TestKindCommands(t *testing.T) {
	t.Parallel()
	in := startInstance(t, airports(t))
	at := hour(6).UnixMilli()
	p := func(airport string) string { return fmt.Sprint(router.PartitionFor([]byte(airport), kindPartitions)) }
	for _, c := range []struct {
		line string
		code int
		want string // lines that stdout begins with, or that stderr has
	}{
		{"fetch per-hour JFK --from 2013-01-01T06:00:00Z", exitOK, "JFK 2013-01-01T06:00:00Z 2013-01-01T07:00:00Z 16 " + p("JFK") + "\n" +
			"JFK 2013-01-01T07:00:00Z 2013-01-01T08:00:00Z 17 " + p("JFK")},
		{"fetch per-hour JFK --reverse -n 1", exitOK, "JFK 2013-01-01T07:00:00Z 2013-01-01T08:00:00Z 17 " + p("JFK")},
		{fmt.Sprintf("fetch per-hour JFK --at %d", at), exitOK, "16"},
		{fmt.Sprintf("fetch per-hour JFK --at %d -o json", at), exitOK, `{"key":"JFK","found":true,"start":"2013-01-01T06:00:00Z","end":"2013-01-01T07:00:00Z","value":16,"timestamp":1357020000007`},
		{"fetch per-hour JFK --at 2013-01-01T06:30:00Z", exitNotFound, "key not found"},
		{"fetch per-hour JFK --at 2013-01-01T06:30:00Z -o json", exitNotFound, "key not found"},
		{"fetch per-hour JFK --at noon", exitUsage, "want a time like"},
		{"fetch per-hour JFK --from -1", exitUsage, "before 1970"},
		{"fetch per-hour JFK --from 2013-01-01T06:00:00Z --at 5", exitUsage, "cannot be combined with --from"},
		{"fetch per-hour JFK --at 5 --reverse", exitUsage, "cannot be combined with --reverse"},
		{"fetch per-hour JFK --at 5 -n 1", exitUsage, "cannot be combined with --limit"},
		{"fetch per-hour JFK --from 2013", exitUsage, "--from 2013: a year or milliseconds? want 2013-01-01T00:00:00Z"},
		{"fetch per-hour JFK --to 02013", exitOK, ""},
		{"as-of prices JFK 2013", exitUsage, "TIME 2013: a year or milliseconds?"},
		{"fetch per-hour JFK -n -1", exitUsage, "--limit -1"},
		{"fetch latest JFK", exitUsage, "it answers: get, multi-get, scan, count"},
		{"get per-hour JFK", exitUsage, "it answers: fetch, scan, count"},
		{"history per-hour JFK", exitUsage, "it answers: fetch, scan, count"},
		{"as-of visits JFK 5", exitUsage, "it answers: sessions, scan, count"},
		{"scan per-hour --time-from 2013-01-01T07:00:00Z --from B", exitOK, "JFK 2013-01-01T07:00:00Z 2013-01-01T08:00:00Z 17 " + p("JFK") + "\n" +
			"ORD 2013-01-01T07:00:00Z 2013-01-01T08:00:00Z 27 " + p("ORD")},
		{"scan latest --time-to 5", exitUsage, "latest is a timestamped-key-value store"},
		{"scan per-hour --prefix J", exitUsage, "--prefix: per-hour is a timestamped-window store"},
		{"scan latest --reverse", exitOK, "ORD 2 " + p("ORD") + "\nJFK 1 " + p("JFK") + "\nATL 0 " + p("ATL")},
		{"sessions visits JFK", exitOK, "JFK 2013-01-01T05:00:00Z 2013-01-01T06:00:00.001Z 9 " + p("JFK")},
		{"sessions visits --from 2013-01-01T06:00:00Z -n 1 -o json", exitOK, `{"key":"ATL","start":"2013-01-01T05:00:00Z","end":"2013-01-01T06:00:00.001Z","value":9,"partition":`},
		{"sessions visits --from 2013-01-01T07:00:00Z", exitOK, ""},
		{"get prices JFK", exitOK, "121"},
		{"get prices JFK -o json", exitOK, `{"key":"JFK","found":true,"start":"2013-01-01T07:00:00Z","value":121,`},
		{"as-of prices JFK 2013-01-01T06:59:59.999Z", exitOK, "101"},
		{"as-of prices JFK 2013-01-01T05:30:00Z -o json", exitOK, `{"key":"JFK","found":true,"start":"2013-01-01T05:00:00Z","end":"2013-01-01T07:00:00Z","value":101,`},
		{"as-of prices JFK 2013-01-01T04:00:00Z", exitNotFound, "key not found"},
		{"history prices JFK", exitOK, "JFK 2013-01-01T05:00:00Z 2013-01-01T07:00:00Z 101 " + p("JFK") + "\nJFK 2013-01-01T07:00:00Z - 121 " + p("JFK")},
		{"history prices JFK --reverse -n 1", exitOK, "JFK 2013-01-01T07:00:00Z - 121 " + p("JFK")},
		{"history prices JFK --to 2013-01-01T06:00:00Z -o json", exitOK, `{"key":"JFK","start":"2013-01-01T05:00:00Z","end":"2013-01-01T07:00:00Z","value":101,"timestamp":1357016400000,"partition":`},
		{"multi-get prices JFK LAX", exitOK, "JFK 121 " + p("JFK") + " ACTIVE"},
		{"count prices", exitOK, "3"},
		{"count prices --exact", exitUsage, "it answers: get, multi-get, as-of, history, count without --exact"},
		{"scan prices", exitUsage, "it answers: get,"},
		{"count per-hour --exact", exitOK, "9"},
		{"count per-hour --exact -o json", exitOK, `{"store":"per-hour","rows":9,"exact":true}`},
		{"count visits", exitOK, "3"},
		{"stores", exitOK, "latest timestamped-key-value 3 string int64 - - flights\n" +
			"per-hour timestamped-window 3 string int64 1h0m0s 48h0m0s flights\n" +
			"prices versioned 3 string int64 - 48h0m0s flights\nvisits session 3 string int64 - 48h0m0s flights"},
		{"get latest JFK -o json", exitOK, `{"key":"JFK","found":true,"value":1,`},
		{"get latest JFK --at-least x", exitUsage, "--at-least: no token"},
		{"get latest JFK --at-least eA==", exitUsage, "no token of this version"},
		{"get latest JFK --wait -1s", exitUsage, "--wait -1s"},
	} {
		t.Run(c.line, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := in.run(t, c.line)
			got := stderr
			if code == exitOK {
				got = withoutHeader(stdout)
			}
			if code != c.code || code == exitOK && !strings.HasPrefix(got, c.want) || !strings.Contains(got, c.want) || code == exitOK && c.want == "" && got != "" {
				t.Errorf("exit %d\n%s%swant exit %d\n%s", code, stdout, stderr, c.code, c.want)
			}
		})
	}
}

// withoutHeader has one space between columns and no header.
func withoutHeader(table string) string {
	var lines []string
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "KEY" && f[0] != "STORE" && f[0] != "PARTITION" {
			lines = append(lines, strings.Join(f, " "))
		}
	}
	return strings.Join(lines, "\n")
}

// The token that one answer prints is what the next command takes, for the same store only.
func TestTokenOnTheCommandLine(t *testing.T) {
	t.Parallel()
	in := startInstance(t, airports(t))
	_, stdout, _ := in.run(t, "get latest JFK -o json")
	_, rest, ok := strings.Cut(stdout, `"token":"`)
	token, _, closed := strings.Cut(rest, `"`)
	if !ok || !closed {
		t.Fatal(stdout)
	}
	if code, out, errs := in.run(t, "get latest JFK --wait 1s --at-least "+token); code != exitOK || out != "1\n" {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if code, _, errs := in.run(t, "sessions visits JFK --at-least "+token); code != exitUsage || !strings.Contains(errs, "token of store") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// What a store holds by partition, and who has it.
func TestDescribe(t *testing.T) {
	t.Parallel()
	in := startInstance(t, airports(t))
	code, stdout, stderr := in.run(t, "describe per-hour -o json")
	if code != exitOK || strings.Count(stdout, "\n") != kindPartitions || strings.Count(stdout, in.endpoint) != kindPartitions || !strings.Contains(stdout, `"approximate_rows":`) {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	// Three airports, each with three windows of a key of 3 bytes and a value of 8.
	var rows, bytes int64
	for line := range strings.Lines(stdout) {
		var r partitionRow
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		rows, bytes = rows+*r.Rows, bytes+*r.Bytes
	}
	if rows != 9 || bytes != 9*(3+8) {
		t.Errorf("%d rows, %d bytes\n%s", rows, bytes, stdout)
	}
	for _, name := range []string{"latest", "visits", "prices"} {
		if code, stdout, stderr := in.run(t, "describe "+name); code != exitOK || strings.Contains(withoutHeader(stdout), "- -") {
			t.Errorf("%s: exit %d: %s%s", name, code, stdout, stderr)
		}
	}
}

// A server that ends each stream after one row, so that every row but the first is read behind a token, shows the same rows:
// the real stores go on behind their own cursors.
func TestEveryRowBehindAToken(t *testing.T) {
	t.Parallel()
	whole, cut := startInstance(t, airports(t)), startLimited(t, 1, airports(t))
	for _, line := range []string{
		"scan latest", "scan per-hour", "scan per-hour --from B --time-from 2013-01-01T06:00:00Z", "fetch per-hour JFK", "scan visits",
		"sessions visits ORD", "history prices JFK", "history prices ATL --from 2013-01-01T06:00:00Z",
	} {
		for _, reverse := range []string{"", " --reverse"} {
			code, want, stderr := whole.run(t, line+reverse)
			if code != exitOK || want == "" {
				t.Fatalf("%s: exit %d: %s%s", line, code, want, stderr)
			}
			if code, got, stderr := cut.run(t, line+reverse); code != exitOK || got != want {
				t.Errorf("%s%s: exit %d\n%s%swant\n%s", line, reverse, code, got, stderr, want)
			}
		}
	}
}

// At READ_UNCOMMITTED nothing can go on behind what a server cut off: the output ends with an error and its exit code.
func TestUncommittedScanThatIsCut(t *testing.T) {
	t.Parallel()
	in := startLimited(t, 1, airports(t))
	for _, line := range []string{"scan latest", "scan per-hour --reverse", "fetch per-hour JFK", "sessions visits", "history prices JFK"} {
		code, stdout, stderr := in.run(t, line+" --uncommitted")
		if code != exitFailure || !strings.Contains(stderr, "END_REASON_SERVER_LIMIT after 1 rows") {
			t.Errorf("%s: exit %d: %s%s", line, code, stdout, stderr)
		}
		if code, stdout, stderr := in.run(t, line+" --uncommitted --limit 1"); code != exitOK || stdout == "" {
			t.Errorf("%s --limit 1: exit %d: %s%s", line, code, stdout, stderr)
		}
	}
}
