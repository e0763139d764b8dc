package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/local"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/workflow"
)

// TestMain runs the tool if the test binary is called as waybill. So scripts run the real command line, with exit
// codes.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "waybill" {
		os.Exit(run(os.Args[1:]))
	}
	kafkatest.RunParallel(3)
	kafkatest.Main(m)
}

// binary returns a directory with an executable waybill, for a PATH.
func binary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "waybill")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// quickScripts are the scripts that run in plain `go test`. The others wait, or run many commands.
var quickScripts = []string{"agent", "export"}

// TestScript runs the tools against the system of `waybill up --demo`, in this process. Scripts share it and run in
// parallel, so each uses its own ids.
func TestScript(t *testing.T) {
	sys := startUp(t)
	var scripts []string
	if !suite.All(t) {
		scripts = quickScripts
	}
	runScripts(t, "testdata/script", map[string]string{"WAYBILL_BROKERS": sys.Broker.Addr(), "UP": sys.Broker.Addr(), "CONSOLE": sys.Console}, scripts...)
}

// TestRolesScript runs each role in a separate process, and the tools against them, on both brokers.
func TestRolesScript(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/reject" {
				http.Error(w, `{"code":"declined","message":"no"}`, http.StatusUnprocessableEntity)
				return
			}
			fmt.Fprintf(w, `{"operation":%q,"key":%q}`, strings.TrimPrefix(r.URL.Path, "/"), r.Header.Get("Idempotency-Key"))
		}))
		t.Cleanup(service.Close)
		runScripts(t, "testdata/roles", map[string]string{
			"WAYBILL_BROKERS": strings.Join(b.Addrs, ","), "WAYBILL_NAMESPACE": string(b.Namespace(t)), "URL": service.URL, "CONSOLE": freeAddress(t)})
	})
}

// runScripts runs the named scripts of a directory; no names: all of them.
func runScripts(t *testing.T, dir string, env map[string]string, names ...string) {
	bin := binary(t)
	var files []string
	for _, name := range names {
		files = append(files, filepath.Join(dir, name+".txtar"))
	}
	if len(names) > 0 {
		dir = ""
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Files:               files,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			e.Setenv("USER", "tester")
			for k, v := range env {
				e.Setenv(k, v)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": cmdCode, "json": cmdJSON, "jsonl": cmdJSONL, "eventually": cmdEventually, "wide": cmdWide, "deletetopic": cmdDeleteTopic, "count": cmdCount},
	})
}

// cmdDeleteTopic deletes a topic, as an operator might by mistake: deletetopic NAME
func cmdDeleteTopic(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: deletetopic name")
	}
	ts.Check(kafkatest.DeleteTopic(strings.Split(ts.Getenv("WAYBILL_BROKERS"), ","), args[0]))
}

// startUp runs the system of `waybill up --demo`, with the demo's durations and fewer partitions.
func startUp(t *testing.T) *local.System { return startUpWith(t, 4, demo.Workflow()) }

func startUpWith(t *testing.T, partitions int32, d *workflow.Definition) *local.System {
	t.Helper()
	dir := t.TempDir()
	services, err := demo.OpenServices(filepath.Join(dir, "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	console := &consoleFlags{listen: "127.0.0.1:0", operator: true}
	ctx, stop := context.WithCancel(context.Background())
	sys, err := local.Start(ctx, local.Options{DataDir: dir, Listen: "127.0.0.1:0", Partitions: partitions, Definitions: []*workflow.Definition{d},
		Agents: services.Handlers(), Concurrency: 16, Scheduler: instance.SchedulerOptions{Workers: 2, CreateReplyTo: true, ObserveCapacity: true},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: instance.NewMetrics(),
		StartIndex: func(ctx context.Context, n *instance.Instance) (string, error) {
			return console.start(ctx, n, false, io.Discard)
		}})
	if err != nil {
		t.Fatal(err)
	}
	up, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- sys.Run(ctx, func(ctx context.Context) error {
			err := sys.StartRoles(ctx)
			up <- err
			return err
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, sys.Close(), services.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := <-up; err != nil {
		t.Fatal(err)
	}
	sys.Broker.Open()
	return sys
}

// cmdCode runs a command that must end with an exit code: code 3 waybill ...
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command args...")
	}
	if got := exitCodeOf(ts, args[1:]); strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

func exitCodeOf(ts *testscript.TestScript, args []string) int {
	err := ts.Exec(args[0], args[1:]...)
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.ExitCode()
	}
	ts.Fatalf("%v", err)
	return -1
}

// cmdEventually retries a command until it ends with a code: eventually 0 waybill ... It is for effects of other
// processes.
func cmdEventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually N command args...")
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		got := exitCodeOf(ts, args[1:])
		if strconv.Itoa(got) == args[0] {
			return
		}
		if time.Since(began) > suite.Patience {
			ts.Fatalf("exit code %d for %s, want %s", got, suite.Patience, args[0])
		}
	}
}

// cmdJSON compares the value at a path of a file that has one JSON value: json stdout steps.0.state completed. Without
// a path the file must be valid JSON. len is the length of a list; ! means that there is no such member.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 || len(args) > 3 || neg != (len(args) == 2) {
		ts.Fatalf("usage: json file [path want], or ! json file path")
	}
	var v any
	if err := json.Unmarshal([]byte(ts.ReadFile(args[0])), &v); err != nil {
		ts.Fatalf("%s is no JSON value: %v", args[0], err)
	}
	if len(args) == 1 {
		return
	}
	got, ok := lookup(v, args[1])
	switch {
	case neg && ok:
		ts.Fatalf("%s is %s, want none", args[1], got)
	case neg:
	case !ok || got != args[2]:
		ts.Fatalf("%s is %q (%v), want %q", args[1], got, ok, args[2])
	}
}

// lookup returns the value at a path: a string as it is, anything else as JSON.
func lookup(v any, path string) (string, bool) {
	for _, name := range strings.Split(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = at[name]; !ok {
				return "", false
			}
		case []any:
			if name == "len" {
				return strconv.Itoa(len(at)), true
			}
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(at) {
				return "", false
			}
			v = at[i]
		default:
			return "", false
		}
	}
	if s, ok := v.(string); ok {
		return s, true
	}
	raw, err := json.Marshal(v)
	return string(raw), err == nil
}

// cmdJSONL checks that a file has a number of JSON objects, one per line: jsonl stdout 3.
func cmdJSONL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: jsonl file count")
	}
	n := 0
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			ts.Fatalf("line %d is no JSON object: %v", n+1, err)
		}
		n++
	}
	if strconv.Itoa(n) != args[1] {
		ts.Fatalf("%d lines, want %s", n, args[1])
	}
}
