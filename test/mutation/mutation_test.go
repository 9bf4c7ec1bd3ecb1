//go:build mutation

package mutation_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mutation is one planted fault.
type mutation struct {
	name string
	file string
	// old is in file exactly once and becomes planted.
	old, planted string
	// found by these tests of a package, within so many schedules.
	pkg, run string
	seeds    int
}

func mutations() []mutation {
	const group, restore, badger = "./processor", "./processor/internal/restore", "./store/badgerdb"
	return []mutation{
		{
			name: "offsets are committed before the changes are acknowledged", file: "processor/commit.go",
			old:     "\tif err == nil && t.out.produced > 0 {\n\t\terr = t.out.flush(ctx)\n\t}\n",
			planted: "\tif err == nil && t.out.produced > 0 && t.transactional() {\n\t\terr = t.out.flush(ctx)\n\t}\n",
			pkg:     group, run: "TestSimAtLeastOnce|TestBadInputFailsAtLeastOnce", seeds: 20,
		},
		{
			name: "a task that wrote without reading commits no offset", file: "processor/commit.go",
			old: "\t\tif len(offsets) == before {\n", planted: "\t\tif len(offsets) == before && len(tk.inputs) == 0 {\n",
			pkg: group, run: "TestSimZombiePunctuation|TestSimTimersCommitWithinInterval", seeds: 5,
		},
		{
			name: "an unknown outcome is taken for an abort", file: "processor/settle.go",
			old:     "\tcase sequence == before+1 && by == own:\n\t\treturn wasCommitted\n",
			planted: "\tcase sequence == before+1 && by == own:\n\t\treturn wasAborted\n",
			pkg:     group, run: "TestSimUnknownEnd", seeds: 5,
		},
		{
			name: "the end of a commit does not hold back the owner's age", file: "processor/commit.go",
			old:     "\tt.age.commitEnding(t.rt.now())\n\treturn t.out.client.EndTransaction",
			planted: "\treturn t.out.client.EndTransaction",
			pkg:     group, run: "TestSimAgeOfAnUnpublishedCommit", seeds: 5,
		},
		{
			name: "an owner goes on answering after its task was revoked", file: "processor/registry.go",
			old: "\t\te.serving, e.hidden = false, true\n", planted: "\t\te.hidden = false\n",
			pkg: group, run: "TestSimRevokedTaskIsSilent", seeds: 5,
		},
		{
			name: "what an owner leaves behind counts as new", file: "processor/registry.go",
			old: "\treturn &replica{since: since, owned: since}\n", planted: "\treturn &replica{since: since.Add(1 << 40), owned: since}\n",
			pkg: group, run: "TestSimStandbyMoves|TestSimRandomFaults", seeds: 40,
		},
		{
			name: "commits go on under another member's name", file: "processor/member.go",
			old:     "\treturn identity{member: id, generation: generation}, m.id == \"\" || m.id == id\n",
			planted: "\treturn identity{member: id, generation: generation}, true\n",
			pkg:     group, run: "TestSimSilentRejoin", seeds: 5,
		},
		{
			name: "the committed offsets are asked for after the bound", file: "processor/internal/restore/job.go",
			old:     "\tinputs, err := j.r.committed(ctx, j.req.Inputs)\n\tif err != nil {\n\t\treturn Result{}, err\n\t}\n\trestoredAt := time.Now() // all that was committed before is below the bounds asked for next\n\tfacts, err := j.r.facts(ctx, j.req.Changelogs, j.req.Task.ID().Partition)\n",
			planted: "\tfacts, err := j.r.facts(ctx, j.req.Changelogs, j.req.Task.ID().Partition)\n\tif err != nil {\n\t\treturn Result{}, err\n\t}\n\trestoredAt := time.Now()\n\tinputs, err := j.r.committed(ctx, j.req.Inputs)\n",
			pkg:     restore, run: "TestCommitOfADyingOwner|TestCR03", seeds: 0,
		},
		{
			name: "a standby shows a state that never was", file: "processor/internal/restore/cuts.go",
			old: "\tif c.next >= c.target && !c.unsure {\n", planted: "\tif c.next >= 0 {\n",
			pkg: restore, run: "Standby", seeds: 0,
		},
		{
			name: "a standby shows half a commit", file: "processor/internal/restore/cuts.go",
			old: "\tif len(c.open) > 0 {\n\t\treturn\n\t}\n", planted: "",
			pkg: restore, run: "Standby", seeds: 0,
		},
		{
			name: "a copy's age is that of the newest round, however far the copy is", file: "processor/internal/restore/watched.go",
			old: "return l.ends[i].end > next })", planted: "return l.ends[i].end > next+1<<40 })",
			pkg: group, run: "TestSimStandby", seeds: 40,
		},
		{
			name: "a copy's age counts from the answer, and not from the question", file: "processor/internal/restore/rounds.go",
			old: "watchedEnd{asked: asked, end: end, epoch: o.epoch", planted: "watchedEnd{asked: asked.Add(1e9), end: end, epoch: o.epoch",
			pkg: restore, run: "Rounds|StandbyAge|Proof|OffsetsComeFirst", seeds: 0,
		},
		{
			name: "what a cut move left behind is not undone at open", file: "store/badgerdb/db.go",
			old: "\tif err := db.undo(); err != nil {\n\t\treturn err\n\t}\n\tdb.discard()\n", planted: "\tdb.discard()\n",
			pkg: badger, run: "TestKill", seeds: 0,
		},
		{
			name: "the remote cache keeps what the former owner said", file: "router/remotecache/cache.go",
			old:     "\treturn ok && have.Instance == owner.Instance && have.Incarnation == owner.Incarnation\n",
			planted: "\treturn ok && have.Instance != \"\"\n",
			pkg:     "./router/remotecache", run: "TestOwnerChange", seeds: 0,
		},
		{
			name: "older metadata replaces newer", file: "router/table.go",
			old: "\t\t\tif s.epoch <= have.snap.epoch {\n", planted: "\t\t\tif s.epoch <= 0 {\n",
			pkg: "./router", run: "TestTable", seeds: 0,
		},
		{
			name: "the checksum of a copy from a peer is not looked at", file: "proto/wire/copy.go",
			old: "\tsum := CopyChecksum(s.Checksum, b)\n", planted: "\tsum := m.GetChecksum()\n",
			pkg: group, run: "TestSimSnapshotCorrupt", seeds: 2,
		},
		{
			name: "a copy from a peer need not be a past of the changelog", file: "processor/internal/restore/seed.go",
			old: "\t\tcase v.action != done && v.action != resume:\n", planted: "\t\tcase v.action > rebuild:\n",
			pkg: restore, run: "TestSeedMustFit", seeds: 0,
		},
		{
			name: "a copy for a peer is said to be new", file: "processor/donor.go",
			old: "\th.Age = elapsed(c.kept.rd.since, now)\n", planted: "\th.Age = 0\n",
			pkg: group, run: "TestSimSnapshotKept", seeds: 2,
		},
	}
}

// failedTest finds the first test that failed, failedSeed the first schedule.
var (
	failedTest = regexp.MustCompile(`--- FAIL: (\S+)`)
	failedSeed = regexp.MustCompile(`--- FAIL: (\S+/seed=\d+)`)
)

func TestMutations(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	copied := copyModule(t, root)
	for _, m := range mutations() {
		t.Run(m.name, func(t *testing.T) {
			path := filepath.Join(copied, m.file)
			sound, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(sound, []byte(m.old)); n != 1 {
				t.Fatalf("%s has the place %d times: the mutation is out of date", m.file, n)
			}
			defer func() {
				if err := os.WriteFile(path, sound, 0o600); err != nil {
					t.Fatal(err)
				}
			}()
			if err := os.WriteFile(path, bytes.Replace(sound, []byte(m.old), []byte(m.planted), 1), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"test", "-tags", "invariants", "-count=1", "-failfast", "-timeout", "5m", "-run", m.run, m.pkg}
			if m.seeds > 0 {
				args = append(args, "-seeds", strconv.Itoa(m.seeds))
			}
			out, failed := run(t, copied, args...)
			first := failedSeed.FindStringSubmatch(out)
			if first == nil {
				first = failedTest.FindStringSubmatch(out)
			}
			switch {
			case !failed:
				t.Errorf("not found: go %s passes", strings.Join(args, " "))
			case first == nil && !strings.Contains(out, "panic:"):
				t.Errorf("the mutant was not run:\n%s", tail(out))
			case first == nil:
				t.Log("found by a panic")
			default:
				t.Logf("found by %s", first[1])
			}
		})
	}
}

// copyModule copies what git knows of the module, so that mutants are planted where nobody works.
func copyModule(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	list := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z")
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func run(t *testing.T, dir string, args ...string) (out string, failed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	b, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return string(b), err != nil
}

func tail(s string) string { return s[max(0, len(s)-2000):] }
