package node_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/deploy/kafka/node"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// parentEnv names the environment variable that makes the test binary start a node and wait to be killed.
const parentEnv = "WAYBILL_NODE_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentEnv); dir != "" {
		parent(dir)
	}
	kafkatest.Main(m)
}

func parent(dir string) {
	c, err := node.Start(context.Background(), node.Options{Dir: dir, Overrides: node.TestOverrides(), QuickStart: true})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("serving", c.Brokers()[0])
	select {}
}

func timeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	t.Cleanup(cancel)
	return ctx
}

func answers(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// TestKilledParentLeavesNoNode checks that a node ends when its parent is killed.
func TestKilledParentLeavesNoNode(t *testing.T) {
	kafkatest.NeedKafka(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), parentEnv+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "serving ")
	if !ok || !answers(addr) {
		t.Fatalf("the parent says %q (%v)", line, err)
	}
	children := childrenOf(t, cmd.Process.Pid)
	if len(children) != 1 {
		t.Fatalf("the parent has children %v, want one JVM", children)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("a killed process ended well")
	}
	awaitGone(t, children[0])
}

// childrenOf returns the processes whose parent is pid.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range strings.Fields(string(b)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			children = append(children, child)
		}
	}
	return children
}

// awaitGone waits until a process that is not a child of this one has no threads left. Until init reaps the process it
// is a zombie, but it is in that state already while other threads are still ending.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	ctx := timeout(t)
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		running := slices.ContainsFunc(tasks, func(path string) bool {
			b, err := os.ReadFile(path)
			_, state, _ := strings.Cut(string(b), ") ")
			return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
		})
		if !running {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("process %d still runs: %s", pid, tasks)
		case <-tick.C:
		}
	}
}

func TestFolderIsUsedAgain(t *testing.T) {
	kafkatest.NeedKafka(t)
	o := node.Options{Dir: t.TempDir(), Overrides: node.TestOverrides(), QuickStart: true}
	var ports [2]string
	for i := range ports {
		c, err := node.Start(timeout(t), o)
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = c.Brokers()[0]
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		if answers(ports[i]) {
			t.Errorf("%s answers after Stop", ports[i])
		}
	}
	if ports[0] != ports[1] {
		t.Errorf("started on %s, then on %s", ports[0], ports[1])
	}
	for _, other := range []node.Options{{Dir: o.Dir, Nodes: 3}, {Dir: o.Dir, Port: 9}} {
		if c, err := node.Start(timeout(t), other); err == nil {
			t.Errorf("a folder of one cluster took another: %+v", other)
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestNodeThatEndsByItselfIsReported(t *testing.T) {
	c := kafkatest.KafkaNodes(t, 1, nil)
	if err := c.Kill(0); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(timeout(t), 0); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-c.Failed():
		t.Fatalf("a node that was killed on request is reported: %v", err)
	default:
	}
	children := childrenOf(t, os.Getpid())
	if len(children) == 0 {
		t.Fatal("no JVM")
	}
	for _, pid := range children {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-c.Failed():
		if !strings.Contains(err.Error(), "ended by itself") {
			t.Errorf("reported as %v", err)
		}
	case <-timeout(t).Done():
		t.Fatal("nothing is reported")
	}
}

// apiVersionsRequest is a framed ApiVersions v0 request, the smallest request that a broker answers.
var apiVersionsRequest = []byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff}

// ask sends one request and reports whether an answer arrived within wait.
func ask(t *testing.T, conn net.Conn, wait time.Duration) bool {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(apiVersionsRequest); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1<<16))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return err == nil
}

func TestPausedNodeIsSilentAndGoesOn(t *testing.T) {
	c := kafkatest.KafkaNodes(t, 1, nil)
	conn, err := net.Dial("tcp", c.Brokers()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if !ask(t, conn, suite.Patience) {
		t.Fatal("a running node gives no answer")
	}
	if err := c.Pause(0); err != nil {
		t.Fatal(err)
	}
	if ask(t, conn, 300*time.Millisecond) {
		t.Error("a paused node answers")
	}
	if err := c.Continue(0); err != nil {
		t.Fatal(err)
	}
	if !ask(t, conn, suite.Patience) {
		t.Error("a node that was continued gives no answer")
	}
	if err := c.Pause(0); err != nil {
		t.Fatal(err)
	}
	if err := c.Terminate(0); err != nil {
		t.Errorf("a paused node can't be ended: %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	kafkatest.NeedKafka(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = node.Start(timeout(t), node.Options{Dir: t.TempDir(), Port: port})
	if !errors.Is(err, node.ErrPortInUse) || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Errorf("a taken port gives %v", err)
	}
}

// TestStartFailureSaysWhatKafkaSays checks that the error of Start quotes Kafka's reason for refusing a property.
func TestStartFailureSaysWhatKafkaSays(t *testing.T) {
	kafkatest.NeedKafka(t)
	for property, value := range map[string]string{
		"log.retention.ms":      "soon",               // refused when the directory is formatted
		"authorizer.class.name": "no.such.Authorizer", // refused when the node starts
	} {
		_, err := node.Start(timeout(t), node.Options{Dir: t.TempDir(), Overrides: map[string]string{property: value}})
		if err == nil || !strings.Contains(err.Error(), value) {
			t.Errorf("%s=%s gives %v", property, value, err)
		}
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	empty := t.TempDir()
	t.Run("java", func(t *testing.T) {
		t.Setenv("PATH", empty)
		t.Setenv("JAVA_HOME", "")
		wantMissing(t, "apt-get install openjdk-17")
	})
	t.Run("old java", func(t *testing.T) {
		home := t.TempDir()
		script := "#!/bin/sh\necho 'openjdk version \"1.8.0_292\"' >&2\n"
		if err := os.MkdirAll(filepath.Join(home, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, "bin", "java"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("JAVA_HOME", home)
		wantMissing(t, "is Java 8")
	})
	t.Run("mvn", func(t *testing.T) {
		home := t.TempDir()
		script := "#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n"
		if err := os.MkdirAll(filepath.Join(home, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, "bin", "java"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("JAVA_HOME", home)
		t.Setenv("PATH", empty)
		t.Setenv(node.LibsEnv, filepath.Join(empty, "libs"))
		wantMissing(t, "apt-get install maven")
	})
}

func wantMissing(t *testing.T, advice string) {
	t.Helper()
	err := node.Available(t.Context())
	if !errors.Is(err, node.ErrMissing) || !strings.Contains(err.Error(), advice) {
		t.Errorf("Available says %v, want %q", err, advice)
	}
	if _, startErr := node.Start(t.Context(), node.Options{}); startErr == nil {
		t.Error("Start starts without it")
	} else if startErr.Error() != err.Error() {
		t.Errorf("Start says %v, Available %v", startErr, err)
	}
}

// TestFurtherListener checks an additional listener with SASL, which tests of client settings use. It must listen, and
// refuse unauthenticated clients.
func TestFurtherListener(t *testing.T) {
	c := kafkatest.KafkaCluster(t, node.Options{
		Listeners: map[string]string{"SECURE": "SASL_PLAINTEXT"},
		Overrides: map[string]string{
			"sasl.enabled.mechanisms":                     "PLAIN",
			"listener.name.secure.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";`,
			"authorizer.class.name":                       "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":                                 "User:ANONYMOUS",
		},
	})
	addr := c.Listener("SECURE")
	if len(addr) != 1 || addr[0] == c.Brokers()[0] {
		t.Fatalf("SECURE is at %v, the brokers at %v", addr, c.Brokers())
	}
	if c.Listener("OTHER") != nil {
		t.Error("there is a listener that nobody asked for")
	}
	b := kafkatest.Broker{Kind: kafkatest.KafkaKind, Addrs: addr}
	login := func(password string) []string {
		return []string{"-L", "-J", "-X", "security.protocol=sasl_plaintext", "-X", "sasl.mechanisms=PLAIN",
			"-X", "sasl.username=alice", "-X", "sasl.password=" + password}
	}
	var listed struct{ Brokers []struct{ Name string } }
	out := b.Kcat(t, "", login("secret")...)
	if err := json.Unmarshal([]byte(out), &listed); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(listed.Brokers) != 1 || listed.Brokers[0].Name != addr[0] {
		t.Errorf("alice sees %+v, want %s", listed, addr[0])
	}
	refused := exec.Command("kcat", append([]string{"-b", addr[0], "-m", "3"}, login("wrong")...)...)
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "Authentication failed") {
		t.Errorf("a wrong password gives %v: %s", err, out)
	}
}

// TestQuickStartSharesClasses checks that a broker of tests maps the archive of classes.
func TestQuickStartSharesClasses(t *testing.T) {
	c := kafkatest.KafkaNodes(t, 1, nil)
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range processes {
		command, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(command, []byte(c.Dir())) || !bytes.Contains(command, []byte("kafka.Kafka")) {
			continue // another process, or one that has ended
		}
		maps, err := os.ReadFile(filepath.Join(filepath.Dir(path), "maps"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(maps, []byte(".jsa\n")) || !bytes.Contains(maps, []byte("/broker-")) {
			t.Errorf("the broker has no archive of classes; its command: %s", bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
		}
		return
	}
	t.Error("no process of the broker was found")
}
