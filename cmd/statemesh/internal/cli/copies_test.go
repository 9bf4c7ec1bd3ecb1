package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// holdings are what the instance of the tests says of itself.
func (in *instance) holdings() []router.Holding {
	return []router.Holding{
		{Task: store.TaskID{Partition: 0}, Role: router.HeldAsOwner, State: router.HoldingServing, Age: 12 * time.Millisecond},
		{
			Task: store.TaskID{Partition: 1}, Role: router.HeldAsOwner, State: router.HoldingRestoring, Restored: 1200, Total: 336776,
			Left: 83 * time.Second, Lag: 335576, Age: -1,
		},
		{
			Task: store.TaskID{Partition: 2}, Role: router.HeldAsStandby, State: router.HoldingCopying, Restored: 5000, Total: 20000, From: "b", Bytes: 1_250_000,
			Left: 30 * time.Second, Lag: -1, Age: -1,
		},
	}
}

func TestCopiesCommand(t *testing.T) {
	t.Parallel()
	in := startInstance(t, func(*instance) {})
	code, out, errs := in.run(t, "copies")
	lines := strings.Split(out, "\n")
	if code != exitOK || len(lines) < 4 || strings.Join(strings.Fields(lines[2]), " ") != "0_1 owner restoring 1,200 of 336,776 1m23s 335,576 - "+in.endpoint+" a" {
		t.Errorf("%d:\n%s%s", code, out, errs)
	}
	if strings.Join(strings.Fields(lines[3]), " ") != "0_2 standby copying 5,000 of 20,000 (1.2 MB) 30s - - "+in.endpoint+" a" {
		t.Errorf("\n%s", out)
	}
	code, out, errs = in.run(t, "copies latest -o json")
	var row copyRow
	if err := json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &row); err != nil || code != exitOK {
		t.Fatalf("%d: %v\n%s%s", code, err, out, errs)
	}
	if row.Task != "0_0" || row.Role != "owner" || row.State != "serving" || row.Lag != 0 || row.AgeMillis < 12 || row.Instance != "a" || row.Endpoint != in.endpoint {
		t.Errorf("%+v", row)
	}
	row = copyRow{}
	if err := json.Unmarshal([]byte(strings.Split(out, "\n")[2]), &row); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if row.State != "copying" || row.From != "b" || row.Bytes != 1_250_000 || row.Restored != 5000 || row.Total != 20000 || row.LeftMillis != 30_000 {
		t.Errorf("%+v", row)
	}
	if code, _, errs := in.run(t, "copies nope"); code != exitNotFound && code != exitUsage || !strings.Contains(errs, "no such store") {
		t.Errorf("%d: %s", code, errs)
	}
}

// Of whom nothing is known comes last, with the reason, and not as a success.
func TestCopiesOfTheSilent(t *testing.T) {
	t.Parallel()
	task := func(p store.Partition, role router.HoldingRole) router.Holding {
		return router.Holding{Task: store.TaskID{Partition: p}, Role: role, State: router.HoldingFollowing, Lag: -1, Age: -1}
	}
	var buf bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&buf)
	outputFlag(cmd)
	out, err := newPrinter(cmd)
	if err != nil {
		t.Fatal(err)
	}
	err = writeCopies(out, []client.InstanceHoldings{
		{Instance: router.Instance{ID: "a", Endpoint: "a:1"}, Problem: "no answer within 1s"},
		{Instance: router.Instance{ID: "b", Endpoint: "b:1"}, Holdings: []router.Holding{task(0, router.HeldAsStandby), task(1, router.HeldAsOwner)}},
		{Instance: router.Instance{ID: "c", Endpoint: "c:1"}, Holdings: []router.Holding{task(0, router.HeldAsOwner)}},
	})
	if err == nil || !strings.Contains(err.Error(), "a:1") {
		t.Error(err)
	}
	var got []string
	for line := range strings.Lines(buf.String()) {
		f := strings.Fields(line)
		got = append(got, f[0]+" "+f[1]+" "+f[len(f)-1])
	}
	if want := "0_0 owner c, 0_0 standby b, 0_1 owner b, - - a"; strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
}

// TestPartialFlag: what is partial is said beside the value, and in the JSON; a scan of it does not end well.
func TestPartialFlag(t *testing.T) {
	t.Parallel()
	in := startInstance(t, airports(t))
	in.partial = &store.Partial{Restored: 3, Total: 10, Left: 5 * time.Second, StreamTime: 8}
	const progress = "3 of 10 restored, about 5s left"
	if code, out, errs := in.run(t, "get latest JFK --timeout 300ms"); code == exitOK || out != "" || !strings.Contains(errs, "restoring, 3 of 10, about 5s left") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if code, out, errs := in.run(t, "get latest JFK --partial"); code != exitOK || out != "1\n" || !strings.Contains(errs, progress) {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	code, out, errs := in.run(t, "get latest JFK --partial -o json")
	var row answerRow
	if err := json.Unmarshal([]byte(out), &row); err != nil || code != exitOK || errs != "" {
		t.Fatalf("%d: %v\n%s%s", code, err, out, errs)
	}
	if p := row.Partial; p == nil || p.Restored != 3 || p.Total != 10 || p.LeftMillis != 5000 || *p.StreamTime != 8 || row.AgeMillis != -1 || len(row.Token) > 0 {
		t.Errorf("%+v", row)
	}
	if code, out, errs := in.run(t, "get latest XXX --partial"); code != exitNotFound || out != "" || !strings.Contains(errs, "it may be there") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if code, out, errs := in.run(t, "count latest --partial"); code != exitOK || out != "3\n" || !strings.Contains(errs, progress) {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if code, out, errs := in.run(t, "scan latest --partial"); code == exitOK || !strings.Contains(out, "JFK") || !strings.Contains(errs, progress) {
		t.Errorf("%d: %s%s", code, out, errs)
	}
}
