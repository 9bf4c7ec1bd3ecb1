package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"statemesh": main})
}

// The program as a user meets it: texts, exit codes, and a fleet of real processes.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(2 * time.Minute),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "spawn": spawn, "await": await, "end": end, "retry": retry, "files": files,
		},
		Setup: func(env *testscript.Env) error {
			root, err := filepath.Abs("../..")
			if err != nil {
				return err
			}
			env.Setenv("ROOT", root)
			env.Setenv("TMPDIR", filepath.Join(env.WorkDir, ".tmp"))
			env.Values[children{}] = make(map[string]*child)
			return nil
		},
	})
}

// exits CODE PROGRAM ARGS... runs a program that must end with a code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		code = "-1"
		if e, ok := err.(*exec.ExitError); ok { //nolint:errorlint // testscript returns it as it is
			code = fmt.Sprint(e.ExitCode())
		}
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, want %s", code, args[0])
	}
}

var hereDocument = regexp.MustCompile(`(?ms)^cat > (\S+) <<'EOF'\n(.*?)^EOF$`)

// files DOCUMENT writes the files that a document has its reader write with cat.
func files(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: files DOCUMENT")
	}
	all := hereDocument.FindAllStringSubmatch(ts.ReadFile(args[0]), -1)
	if len(all) == 0 {
		ts.Fatalf("%s has no file", args[0])
	}
	for _, f := range all {
		ts.Check(os.WriteFile(ts.MkAbs(f[1]), []byte(f[2]), 0o600))
	}
}

// retry SECONDS PATTERN PROGRAM ARGS... runs a program until it succeeds with output that matches: what was produced is
// visible a commit later, and what a killed process owned when another has taken over.
func retry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: retry SECONDS PATTERN PROGRAM ARGS...")
	}
	limit, err := time.ParseDuration(args[0] + "s")
	ts.Check(err)
	want := regexp.MustCompile("(?m)" + args[1])
	for deadline := time.Now().Add(limit); ; {
		err := ts.Exec(args[2], args[3:]...)
		if err == nil && want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("not as wanted after %s: %v", limit, err)
		}
	}
}

// children is the key of the background processes of a script.
type children struct{}

type child struct {
	cmd    *exec.Cmd
	events chan event
	exited chan struct{}
	log    string
}

type event struct{ Event, Endpoint string }

// spawn NAME PROGRAM ARGS... starts a process that reports events as JSON, and puts its endpoint into the variable NAME.
func spawn(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: spawn NAME PROGRAM ARGS...")
	}
	path, err := exec.LookPath(filepath.Join(strings.Split(ts.Getenv("PATH"), string(os.PathListSeparator))[0], args[1]))
	ts.Check(err)
	c := &child{
		cmd: exec.Command(path, args[2:]...), events: make(chan event, 16), exited: make(chan struct{}),
		log: ts.MkAbs(args[0] + ".log"),
	}
	log, err := os.Create(c.log)
	ts.Check(err)
	defer func() { _ = log.Close() }()
	c.cmd.Dir, c.cmd.Stderr = ts.MkAbs("."), log
	out, in, err := os.Pipe()
	ts.Check(err)
	c.cmd.Stdout = in
	ts.Check(c.cmd.Start())
	ts.Check(in.Close())
	go func() {
		defer close(c.events)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				c.events <- e
			}
		}
	}()
	go func() { _ = c.cmd.Wait(); close(c.exited) }()
	ts.Defer(func() { _ = c.cmd.Process.Kill(); <-c.exited })
	ts.Value(children{}).(map[string]*child)[args[0]] = c
	await(ts, false, []string{args[0], "listening"})
}

// await NAME EVENT waits for an event of a process.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await NAME EVENT")
	}
	c := ts.Value(children{}).(map[string]*child)[args[0]]
	timeout := time.After(time.Minute)
	for {
		select {
		case e, ok := <-c.events:
			if !ok {
				ts.Fatalf("%s ended before it was %s:\n%s", args[0], args[1], ts.ReadFile(c.log))
			}
			if e.Event == args[1] {
				ts.Setenv(args[0], e.Endpoint)
				return
			}
		case <-timeout:
			ts.Fatalf("%s was not %s in time:\n%s", args[0], args[1], ts.ReadFile(c.log))
		}
	}
}

// end NAME TERM|KILL CODE ends a process with a signal; its exit code must be CODE, -1 when the signal ends it.
func end(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: end NAME TERM|KILL CODE")
	}
	c := ts.Value(children{}).(map[string]*child)[args[0]]
	sig := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[args[1]]
	ts.Check(c.cmd.Process.Signal(sig))
	select {
	case <-c.exited:
	case <-time.After(time.Minute):
		ts.Fatalf("%s does not end:\n%s", args[0], ts.ReadFile(c.log))
	}
	if got := fmt.Sprint(c.cmd.ProcessState.ExitCode()); got != args[2] {
		ts.Fatalf("%s ended with %s, want %s:\n%s", args[0], got, args[2], ts.ReadFile(c.log))
	}
}
