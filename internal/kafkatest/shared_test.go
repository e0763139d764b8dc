package kafkatest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/suite"
)

// userEnv names the environment variable that makes the test binary a user of the shared broker in that directory.
const userEnv = "WAYBILL_KAFKATEST_USER"

// TestMain also runs the processes that TestProcessesShare starts.
func TestMain(m *testing.M) {
	dir := os.Getenv(userEnv)
	if dir == "" || os.Getenv(hostEnv) != "" {
		Main(m)
	}
	addr, err := joinShared(dir)
	fmt.Println(addr, err)
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
	os.Exit(0)
}

// user is another process that uses the shared broker.
type user struct {
	cmd   *exec.Cmd
	stdin io.Closer
	said  *bufio.Reader
}

func startUser(t *testing.T, dir string) *user {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), userEnv+"="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	u := &user{cmd, stdin, bufio.NewReader(out)}
	t.Cleanup(u.kill)
	return u
}

// address returns the address that the process printed.
func (u *user) address(t *testing.T) string {
	t.Helper()
	line, err := u.said.ReadString('\n')
	addr, ok := strings.CutSuffix(line, " <nil>\n")
	if !ok {
		t.Fatalf("a process got no broker: %q, %v", line, err)
	}
	return addr
}

// kill ends the process with SIGKILL, so it can't release its locks itself.
func (u *user) kill() {
	_ = u.cmd.Process.Kill() // it may have been killed before
	_ = u.cmd.Wait()
}

func answers(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	return err == nil && conn.Close() == nil
}

func awaitSilence(t *testing.T, addr string) time.Duration {
	t.Helper()
	begin := time.Now()
	ctx := timeout(t)
	for tick := time.NewTicker(20 * time.Millisecond); answers(addr); {
		select {
		case <-ctx.Done():
			t.Fatalf("%s still answers", addr)
		case <-tick.C:
		}
	}
	return time.Since(begin)
}

func TestProcessesShare(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	NeedKafka(t)
	dir := t.TempDir()
	a, b := startUser(t, dir), startUser(t, dir)
	first := a.address(t)
	if second := b.address(t); first != second || !answers(first) {
		t.Fatalf("two processes at once use %s and %s", first, second)
	}
	a.kill() // whether or not it started the host
	if c := startUser(t, dir); c.address(t) != first {
		t.Error("a third process got another broker")
	} else {
		b.kill()
		if !answers(first) {
			t.Error("the broker ended while it was used")
		}
		c.kill()
	}
	if lingered := awaitSilence(t, first); lingered < lingerDuration/2 {
		t.Errorf("the broker ended %v after its last user", lingered)
	}
	d := startUser(t, dir)
	again := d.address(t)
	if !answers(again) {
		t.Fatal("no broker after the first one ended")
	}
	// When its host is killed, the node must end.
	killHost(t, dir)
	awaitSilence(t, again)
	d.kill()
}

// killHost kills the process that holds the host lock of dir.
func killHost(t *testing.T, dir string) {
	t.Helper()
	exes, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range exes {
		env, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(env), hostEnv+"="+dir+"\x00") {
			continue // the process ended, belongs to another user, or is unrelated
		}
		exe, err := os.Readlink(filepath.Join(filepath.Dir(path), "exe"))
		if err != nil || !strings.Contains(exe, "kafkatest.test") {
			continue // the JVM inherits the variable
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/environ", &pid); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no process is the host of %s", dir)
}
