package golden

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/sources"
	"github.com/waybill-run/waybill/internal/suite"
)

// lookEvery is how often a test lists the tasks: each time is a process.
const lookEvery = 200 * time.Millisecond

// today is the binary of this tree, built once for each test process.
var today = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "waybill-golden-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	path := filepath.Join(dir, "waybill")
	if err := sources.Open("../.."); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../../cmd/waybill").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

var builtIn string

func TestMain(m *testing.M) {
	code := m.Run()
	if builtIn != "" {
		if err := os.RemoveAll(builtIn); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

func todaysBinary(t *testing.T) string {
	t.Helper()
	path, err := today()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// up is a running `waybill up`.
type up struct {
	cmd   *exec.Cmd
	addr  string
	said  *bytes.Buffer // both outputs; whole once ended is closed
	ended chan struct{}
}

var kafkaAt = regexp.MustCompile(`Kafka +(127\.0\.0\.1:\d+)`)

// startUp starts `waybill up --demo` of a binary on a data directory, and
// returns when its door is open.
func startUp(t *testing.T, binary, dir string, args ...string) *up {
	t.Helper()
	u := &up{said: &bytes.Buffer{}, ended: make(chan struct{})}
	u.cmd = exec.Command(binary, append([]string{"up", "--demo", "--rate", "0", "--data-dir", dir, "--kafka-listen", "127.0.0.1:0"}, args...)...)
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := u.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	u.cmd.Stderr = u.cmd.Stdout
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	open := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			u.said.WriteString(lines.Text() + "\n")
			if m := kafkaAt.FindStringSubmatch(lines.Text()); m != nil {
				open <- m[1]
			}
		}
		_ = u.cmd.Wait() // stop asks for the end of the process
		close(u.ended)
	}()
	t.Cleanup(func() {
		_ = u.cmd.Process.Kill() // it may have ended by itself
		<-u.ended
		if t.Failed() {
			t.Logf("waybill up said:\n%s", u.said)
		}
	})
	select {
	case u.addr = <-open:
	case <-u.ended:
		t.Fatalf("waybill up ended before its door was open:\n%s", u.said)
	case <-time.After(suite.Patience):
		t.Fatal("waybill up doesn't open its door")
	}
	return u
}

// stop has it end by SIGTERM.
func (u *up) stop(t *testing.T) {
	t.Helper()
	_ = u.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-u.ended:
	case <-time.After(suite.Patience):
		t.Fatal("waybill up doesn't end on SIGTERM")
	}
}

// tool runs a command of today's binary; it must end with the code.
func (u *up) tool(t *testing.T, code int, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, todaysBinary(t), args...)
	cmd.Env = append(os.Environ(), "WAYBILL_BROKERS="+u.addr)
	var out, note bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &note
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("waybill %s: %v, want exit code %d\n%s%s", strings.Join(args, " "), err, code, &out, &note)
	}
	return out.Bytes()
}

func (u *up) tasks(t *testing.T) map[string]events.TaskView {
	t.Helper()
	var views []events.TaskView
	if err := json.Unmarshal(u.tool(t, 0, "task", "list", "-o", "json"), &views); err != nil {
		t.Fatal(err)
	}
	byID := map[string]events.TaskView{}
	for _, v := range views {
		byID[v.ID] = v
	}
	return byID
}

// await lists the tasks until they are as wanted.
func (u *up) await(t *testing.T, what string, done func(map[string]events.TaskView) bool) map[string]events.TaskView {
	t.Helper()
	deadline := time.Now().Add(suite.Patience)
	for {
		tasks := u.tasks(t)
		if done(tasks) {
			return tasks
		}
		if time.Now().After(deadline) {
			for id, v := range tasks {
				t.Logf("%s: %s", id, v.State)
			}
			t.Fatalf("waited %s for %s", suite.Patience, what)
		}
		select {
		case <-time.After(lookEvery):
		case <-u.ended:
			t.Fatalf("waybill up ended while the test waited for %s", what)
		}
	}
}

// awaitStates waits until tasks are in their states.
func (u *up) awaitStates(t *testing.T, want map[string]events.TaskState) {
	t.Helper()
	u.await(t, fmt.Sprint(want), func(tasks map[string]events.TaskView) bool {
		for id, state := range want {
			if tasks[id].State != state {
				return false
			}
		}
		return true
	})
}
