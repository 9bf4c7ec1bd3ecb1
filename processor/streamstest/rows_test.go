package streamstest_test

import (
	"testing"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// TestRowsOfEveryKind: stores of every kind are read as committed, as processors see them, and in one partition.
func TestRowsOfEveryKind(t *testing.T) {
	t.Parallel()
	d := streamstest.NewT(t, kinds(), streamstest.Config{Partitions: map[string]int32{"in": 2}, CommitInterval: streamstest.Never})
	text := serde.String()
	in := streamstest.NewInput(d, "in", text, text)
	windows, sessions := streamstest.NewWindow(d, "windows", text, text), streamstest.NewSession(d, "sessions", text, text)
	versions := streamstest.NewVersioned(d, "versions", text, text)
	in.To(0).Pipe("a", "1", 11)
	in.To(1).Pipe("a", "2", 12)
	want(t, "committed", append(texts(windows.Rows()), texts(sessions.Rows())...), nil)
	want(t, "windows of 1", texts(windows.In(1).Uncommitted().Rows()), []string{"a[10,20]=2@12"})
	want(t, "sessions of 1", texts(sessions.Uncommitted().In(1).Rows()), []string{"a[12,17]=2@-1"})
	want(t, "versions of 1", texts(versions.Uncommitted().In(1).Versions("a")), []string{"a[12,]=2@12"})
	if v, ok := windows.Uncommitted().In(0).Fetch("a", 10); v != "1" || !ok {
		t.Errorf("window of 0: %q, %t", v, ok)
	}
	d.Commit()
	want(t, "windows", texts(windows.Rows()), []string{"a[10,20]=1@11", "a[10,20]=2@12"})
}

// TestReadMapWithoutKeys: records without a key are no rows.
func TestReadMapWithoutKeys(t *testing.T) {
	t.Parallel()
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").AddSink("out", processor.SinkOptions{}, "out", "in")
	d := streamstest.NewT(t, topology, streamstest.Config{})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	in.PipeValue("nobody's")
	in.Pipe("a", "1", 1)
	in.Pipe("b", "2", 2)
	in.PipeTombstone("b", 3)
	have := streamstest.ReadMap(streamstest.NewOutput(d, "out", serde.String(), serde.String()))
	if len(have) != 1 || have["a"] != "1" {
		t.Errorf("%v", have)
	}
}
