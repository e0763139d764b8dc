package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// system is a Waybill installation under test: its brokers and its namespace.
type system struct {
	broker     *kafkatest.Broker
	ns         events.Namespace
	partitions int32
	kills      []time.Time // times at which the embedded broker was killed
	reusesIDs  bool        // ids of ended tasks are forgotten, and used again
}

func (s *system) config() kafka.Config {
	return kafka.Config{Brokers: s.broker.Addrs, Namespace: s.ns, ClientID: "test"}
}

// env returns the settings of every command.
func (s *system) env() []string {
	return []string{"WAYBILL_BROKERS=" + strings.Join(s.broker.Addrs, ","), "WAYBILL_NAMESPACE=" + string(s.ns)}
}

// start starts a role as a process and returns once it reports that it has started.
func (s *system) start(t *testing.T, args ...string) *process {
	t.Helper()
	return startRole(t, s.env(), args...)
}

// waybill runs a command that must end with the code, and returns its output.
func (s *system) waybill(t *testing.T, code int, args ...string) string {
	t.Helper()
	out, note, got := endsWith(t, code, s.env(), args...)
	if got != code {
		t.Fatalf("waybill %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, note)
	}
	return out
}

// task runs `waybill task get`.
func (s *system) task(t *testing.T, id string) events.TaskView {
	t.Helper()
	var v events.TaskView
	if err := json.Unmarshal([]byte(s.waybill(t, exitOK, "task", "get", id, "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// upSystem is `waybill up`: one process with a persistent directory. It can be killed and restarted, always on the same
// port.
type upSystem struct {
	system
	dir  string
	args []string
	*process
}

// startUpProcess starts `waybill up` with the arguments, in a directory of the test. Without --rate it submits no orders.
func startUpProcess(t *testing.T, args ...string) *upSystem {
	t.Helper()
	addr := freeAddress(t)
	u := &upSystem{dir: t.TempDir(), system: system{ns: events.DefaultNamespace, partitions: events.DefaultPartitions,
		broker: &kafkatest.Broker{Kind: kafkatest.EmbeddedKind, Addrs: []string{addr}}}}
	u.args = append([]string{"up", "--data-dir", u.dir, "--kafka-listen", addr, "--partitions", strconv.Itoa(int(u.partitions))}, args...)
	if slices.Contains(args, "--demo") && !slices.Contains(args, "--rate") {
		u.args = append(u.args, "--rate", "0") // the test submits what it needs
	}
	u.start(t)
	return u
}

// start starts the process, also after a kill.
func (u *upSystem) start(t *testing.T) {
	t.Helper()
	u.process = startProcess(t, nil, u.args...)
	u.process.await(t, "Waybill is up")
}

// kill kills the process with SIGKILL, including its broker.
func (u *upSystem) kill() {
	u.kills = append(u.kills, time.Now())
	u.process.kill()
}

func (u *upSystem) ledger() string { return filepath.Join(u.dir, "ledger.jsonl") }

// freeAddress returns a local address that nothing listens on. Its port is below the kernel's range of ephemeral ports,
// so that no outgoing connection takes it while the process is down.
func freeAddress(t *testing.T) string {
	t.Helper()
	taken.Lock()
	defer taken.Unlock()
	for port := 12000 + os.Getpid()%6000; port < 19000; port++ {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if taken.addrs[addr] {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		taken.addrs[addr] = true
		return addr
	}
	t.Fatal("no port is free")
	return ""
}

// taken holds the addresses that were given to tests of this process.
var taken = struct {
	sync.Mutex
	addrs map[string]bool
}{addrs: map[string]bool{}}

// quick is the sample workflow with short durations. Its parameter for attempts is high where each attempt is one call
// (tok_down fails five times), and low where the agent itself retries until complete-by.
const quick = `workflow: %s
version: 1
complete_within: 2h
on_error: %s
defaults:
  complete_within: 10s
  retry: {max_attempts: %d, backoff: 50ms, factor: 2, max: 400ms, cool_down: 1s}
steps:
  reserve:
    agent: inventory
    operation: reserve
    input: {order: "${ task.id }", items: "${ input.items }"}
    undo: {operation: release}
  charge:
    needs: [reserve]
    agent: payments
    operation: charge
    input: {amount: "${ input.total }", card: "${ input.card }"}
    undo: {operation: refund}
  ship:
    needs: [charge]
    agent: shipping
    operation: create
    input: {order: "${ task.id }", address: "${ input.address }"}
    undo: {operation: cancel}
output: {tracking: "${ steps.ship.output.tracking }"}
`

// writeFile writes a file of the test and returns its path.
func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	callAttempts = 8
	httpAttempts = 3
)

func quickWorkflow(t *testing.T, name, onError string, attempts int) string {
	t.Helper()
	return writeFile(t, name+".yaml", fmt.Appendf(nil, quick, name, onError, attempts))
}

// sampleWorkflow returns the path of the sample workflow, which up --demo uses.
func sampleWorkflow(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../workflow/order.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// unattended marks orders that no operator resubmits.
func unattended(orders []demo.Order) []demo.Order {
	for i := range orders {
		orders[i].Resubmit = false
	}
	return orders
}

// ordersFile writes orders in the format of `waybill submit -f`.
func ordersFile(t *testing.T, orders []demo.Order, workflow string) string {
	t.Helper()
	var b bytes.Buffer
	for _, o := range orders {
		fmt.Fprintf(&b, "{\"id\":%q,\"workflow\":%q,\"input\":%s}\n", o.ID, workflow, o.Body)
	}
	return writeFile(t, "orders.jsonl", b.Bytes())
}
