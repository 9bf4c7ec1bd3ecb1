package statemesh

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/statemesh/statemesh/processor"
)

// Who comes after a crash knows whom it succeeds: all since the last one that left the group, with their members. Who comes after
// a clean end, in a copy of the directory, or finds a note it cannot read, succeeds nobody.
func TestSucceed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	member := func(incarnation string) processor.MemberInfo {
		return processor.MemberInfo{Incarnation: incarnation, Member: "member of " + incarnation, TransactionalID: "id of " + incarnation}
	}
	want := func(dir, incarnation string, former ...string) *note {
		t.Helper()
		n, got, err := succeed(dir)
		if err != nil || len(got) != len(former) {
			t.Fatalf("%s succeeds %+v, %v; want %q", incarnation, got, err, former)
		}
		for i, m := range got {
			if m != member(former[i]) {
				t.Fatalf("%s succeeds %+v; want %q", incarnation, got, former)
			}
		}
		if err := n.add(member(incarnation)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.close() })
		return n
	}
	want(dir, "1")
	want(dir, "2", "1") // 1 crashed
	n := want(dir, "3", "1", "2")
	kept, err := os.ReadFile(filepath.Join(dir, incarnationFile))
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir() // a copy: 3 may live
	if err := os.WriteFile(filepath.Join(other, incarnationFile), kept, 0o600); err != nil {
		t.Fatal(err)
	}
	want(other, "4")
	want(other, "5", "4")
	for range 2 { // left the group, and nothing to take back
		if err := n.resign(); err != nil {
			t.Fatal(err)
		}
	}
	want(dir, "6")
	for i := range 20 { // lost its membership again and again
		n, _, err := succeed(dir)
		if err != nil {
			t.Fatal(err)
		}
		for m := range 10 {
			if err := n.add(member(fmt.Sprintf("%d-%d", i, m))); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.close(); err != nil {
			t.Fatal(err)
		}
		if err := n.add(member("late")); err != nil { // closed: whoever reads it has read it
			t.Fatal(err)
		}
	}
	n, got, err := succeed(dir)
	if err != nil || len(got) != maxFormerMembers || got[maxFormerMembers-1] != member("19-9") {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, incarnationFile), kept[:len(kept)-5], 0o600); err != nil { // cut off by a kill
		t.Fatal(err)
	}
	want(dir, "8", "1", "2")
	for _, garbage := range []string{"", "\n", "7", "7\n8\n9\n", "\x00\xff", `{"member":"9"}`} {
		if err := os.WriteFile(filepath.Join(dir, incarnationFile), []byte(garbage), 0o600); err != nil {
			t.Fatal(err)
		}
		want(dir, "9")
	}
}
