package golden

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/suite"
)

var (
	makeName   = flag.String("make", "", "make a generation of this name, as in 3-1a2b3c4 (testdata/README.md)")
	makeBinary = flag.String("binary", "", "with -make: the waybill that writes the data")
	makeStates = flag.String("states", "", "with -make: the command 'states', built at the same commit")
)

// partitions of a generation: few, so that it stays small.
const partitions = 4

// parcel is a workflow with all that the sample one leaves out: steps side by
// side, a condition, an undo with an input, a step without an undo, and an
// agent that nobody runs while the data is made.
const parcel = `workflow: %s
version: 1
complete_within: 87600h
on_error: %s
defaults:
  complete_within: 1s
  retry: {max_attempts: 5, backoff: 20ms, factor: 2, max: 100ms, cool_down: %s}
steps:
  reserve:
    agent: inventory
    operation: reserve
    input: {order: "${ task.id }", items: "${ input.items }"}
    undo: {operation: release}
  weigh:
    agent: shipping
    operation: weigh
    input: {items: "${ input.items }"}
  charge:
    needs: [reserve]
    agent: payments
    operation: charge
    input: {amount: "${ input.total }", card: "${ input.card }"}
    undo: {operation: refund, input: {reason: "order ${ task.id }"}}
  insure:
    needs: [charge]
    when: "${ input.total > 100 }"
    agent: payments
    operation: insure
    input: {amount: "${ input.total / 50 }"}
    undo: {operation: uninsure}
  ship:
    needs: [insure, weigh]
    agent: shipping
    operation: create
    input: {order: "${ task.id }", address: "${ input.address }"}
    undo: {operation: cancel}
  carry:
    needs: [ship]
    when: "${ has(input.courier) }"
    agent: courier
    operation: carry
    complete_within: %s
    retry: {max_attempts: 2}
    input: {order: "${ task.id }"}
    undo: {operation: recall}
output: {tracking: "${ steps.ship.output.tracking }"}
`

// The workflows: what fails soon is undone or held; what is slow is still open
// when the system is stopped.
var workflows = []struct{ name, onError, coolDown, carry string }{
	{"parcel", "undo", "200ms", "300ms"},
	{"hold", "hold", "200ms", "300ms"},
	{"slow", "undo", "2m", "2m"},
}

// kinds is a workflow with a step of each other kind. With input.approve it waits for a signal. Its child is one of the
// workflows above: with input.courier one that is still open when the system is stopped. A charge of the card input.try
// may be caught.
const kinds = `workflow: kinds
version: 1
complete_within: 87600h
labels: {card: "${ input.card }"}
defaults:
  complete_within: 5s
  retry: {max_attempts: 5, backoff: 20ms, factor: 2, max: 100ms}
steps:
  pause: {wait: 20ms}
  approve:
    needs: [pause]
    when: "${ has(input.approve) }"
    signal: approved
    complete_within: 87000h
  poll:
    agent: shipping
    operation: weigh
    input: {items: "${ input.items }"}
    repeat: {until: "${ output != null }", every: 10ms, max: 5}
  each:
    needs: [approve, poll]
    for_each: "${ input.items }"
    max_parallel: 2
    agent: inventory
    operation: reserve
    input: {order: "${ task.id }-${ index }"}
    undo: {operation: release}
  try:
    needs: [each]
    when: "${ has(input.try) }"
    agent: payments
    operation: charge
    input: {amount: 1, card: "${ input.try }"}
    undo: {operation: refund}
    catch: ["*"]
  child:
    needs: [try]
    when: "${ !has(input.courier) }"
    workflow: parcel
    input: "${ input }"
  late:
    needs: [try]
    when: "${ has(input.courier) }"
    workflow: slow
    input: "${ input }"
output: {items: "${ steps.each.output }"}
`

// TestMake makes a generation: with -make the one that is named, from the binary
// of another commit; else one of today's, in a temporary folder, so that the way
// to make the next works when it is needed. What was made folds to the states
// that its own build gave, and breaks no promise.
func TestMake(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	out, binary, states := filepath.Join("testdata", *makeName), *makeBinary, *makeStates
	if *makeName == "" {
		out, binary, states = filepath.Join(t.TempDir(), "today"), todaysBinary(t), buildStates(t)
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatalf("golden files are added, never edited: %v", err)
	}
	log, own := makeGeneration(t, out, binary, states)
	if *makeName != "" {
		addToManifest(t, out)
	}
	records, err := ReadLog(bytes.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	folded, err := Fold(records, namespace)
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := ReadStates(bytes.NewReader(own))
	if err != nil {
		t.Fatal(err)
	}
	faults, err := Compare(recorded, folded, 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Error(f)
	}
	for _, f := range check(records).Faults {
		t.Error(f)
	}
}

// buildStates builds the command that prints the states of a log.
func buildStates(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "states")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./states").CombinedOutput(); err != nil {
		t.Fatalf("build states: %v\n%s", err, out)
	}
	return path
}

// makeGeneration runs a binary's `up` through every kind of ending, stops it, has
// it go on, and stops it again with work in every kind of wait. It returns the
// log, and the states by the command that was built with the binary.
func makeGeneration(t *testing.T, out, binary, states string) (log, own []byte) {
	t.Helper()
	dir := t.TempDir()
	args := []string{"--partitions", fmt.Sprint(partitions)}
	add := func(name string, definition []byte) {
		path := filepath.Join(t.TempDir(), name+".yaml")
		if err := os.WriteFile(path, definition, 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--workflow", path)
	}
	for _, w := range workflows {
		add(w.name, fmt.Appendf(nil, parcel, w.name, w.onError, w.coolDown, w.carry))
	}
	add("kinds", []byte(kinds))
	u := startUp(t, binary, dir, args...)
	endings(t, u)
	garbage(t, u)
	u.stop(t)
	if err := os.CopyFS(filepath.Join(dir, "earlier"), os.DirFS(filepath.Join(dir, "state"))); err != nil {
		t.Fatal(err)
	}
	u = startUp(t, binary, dir, args...)
	leftOpen(t, u)
	u.stop(t)

	writeArchive(t, filepath.Join(out, "data.tar.gz"), dir)
	log = dump(t, dir)
	writeGzip(t, filepath.Join(out, "log.jsonl.gz"), log)
	cmd := exec.CommandContext(t.Context(), states)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(log), os.Stderr
	own, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	writeGzip(t, filepath.Join(out, "states.jsonl.gz"), own)
	return log, own
}

// order is a submission of a sample order with this card.
func order(id, workflow, card string, total float64, more, fields string) string {
	return fmt.Sprintf(`{"id":%q,"workflow":%q,"input":{"items":[{"sku":"s-1","qty":2}],"total":%g,"card":%q,"address":"1 Harbour Road"%s}%s}`,
		id, workflow, total, card, more, fields)
}

const byCourier = `,"courier":true`

// Tasks of the workflow kinds that are left open: one waits for a signal, one for its child, whose courier nobody runs.
const (
	waits     = "kinds-waits"
	runsChild = "kinds-runs"
	childRuns = runsChild + "/late"
)

func submit(t *testing.T, u *up, orders ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "orders.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(orders, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	u.tool(t, 0, "submit", "-f", path)
}

// endings has orders end in each of the ways that there are.
func endings(t *testing.T, u *up) {
	t.Helper()
	var orders []string
	want := map[string]events.TaskState{}
	add := func(state events.TaskState, id, workflow, card string, total float64, more, fields string) {
		want[id] = state
		orders = append(orders, order(id, workflow, card, total, more, fields))
	}
	for i := range 10 {
		add(events.StateProcessed, fmt.Sprintf("p-%d", i), "parcel", demo.CardWorks, float64(20+20*i), "", `,"priority":3,"labels":{"shop":"eu"}`)
	}
	for i := range 4 {
		add(events.StateProcessed, fmt.Sprintf("sample-%d", i), "order", demo.CardWorks, 9.5, "", `,"reply_to":"shop.status"`)
	}
	for i := range 2 {
		add(events.StateUndone, fmt.Sprintf("declined-%d", i), "parcel", demo.CardDeclined, 150, "", `,"reply_to":"shop.status"`)
		add(events.StateProcessed, fmt.Sprintf("late-%d", i), "parcel", demo.CardSlow, 150, "", "")
		add(events.StateProcessed, fmt.Sprintf("down-%d", i), "parcel", demo.CardDown, 15, "", "")
		add(events.StateError, fmt.Sprintf("stuck-%d", i), "parcel", demo.CardStuckUndo, 150, "", `,"reply_to":"shop.status"`)
		add(events.StateError, fmt.Sprintf("lost-%d", i), "parcel", demo.CardWorks, 150, byCourier, "")
	}
	for i := range 3 {
		add(events.StateError, fmt.Sprintf("held-%d", i), "hold", demo.CardDeclined, 150, "", "")
	}
	add(events.StateProcessed, "kinds-0", "kinds", demo.CardWorks, 150, "", "")
	add(events.StateProcessed, "kinds-1", "kinds", demo.CardWorks, 150, `,"try":"`+demo.CardDeclined+`"`, "")
	add(events.StateUndone, "kinds-2", "kinds", demo.CardDeclined, 150, "", "")
	add(events.StateUndone, "too-late", "parcel", demo.CardWorks, 10, "", `,"complete_by":"2020-01-01T00:00:00.000Z"`)
	submit(t, u, orders...)
	submit(t, u, orders[0], order("cancel-0", "slow", demo.CardDown, 5, "", ""), order("cancel-1", "slow", demo.CardDown, 5, "", ""))
	u.awaitStates(t, want)
	u.await(t, "the tasks to cancel to wait", func(tasks map[string]events.TaskView) bool {
		return cooling(tasks["cancel-0"]) && cooling(tasks["cancel-1"])
	})
	operate(t, u)
	u.awaitStates(t, map[string]events.TaskState{"held-0": events.StateProcessed, "held-1": events.StateUndone, "held-2": events.StateError,
		"lost-0": events.StateUndone, "lost-1": events.StateError, "stuck-0": events.StateError, "stuck-1": events.StateUndone,
		"cancel-0": events.StateCancelled, "cancel-1": events.StateCancelled})
}

// cooling reports whether the charge waits for its cool-down.
func cooling(v events.TaskView) bool {
	return len(v.Steps) > 2 && v.Steps[2].State == events.StepWaiting && v.Steps[2].FailureCount == 5
}

// operate is what an operator does about what is held, and more.
func operate(t *testing.T, u *up) {
	t.Helper()
	by := func(args ...string) []string { return append(args, "--who", "operator", "--why", "golden data") }
	u.tool(t, 0, by("release", "held-0", "charge", "--as", "completed", "--result", `{"charge":"by hand"}`)...)
	u.tool(t, 0, by("resubmit", "held-1", "--request-id", "once")...)
	u.await(t, "held-1 to be held again", func(tasks map[string]events.TaskView) bool {
		return tasks["held-1"].State == events.StateError && tasks["held-1"].Steps[2].Attempt == 2
	})
	u.tool(t, 0, by("resubmit", "held-1", "--request-id", "once")...) // has no second effect
	u.tool(t, 0, by("undo", "held-1")...)
	u.tool(t, 0, by("release", "lost-0", "carry", "--as", "undone")...)
	u.tool(t, 0, by("task", "cancel", "cancel-0")...)
	u.tool(t, 0, by("task", "cancel", "cancel-1", "--keep")...)
	u.tool(t, 8, by("resubmit", "p-0")...) // refused
	u.tool(t, 0, by("release", "stuck-1", "charge", "--as", "undone")...)
	// Refunds are down still.
	attempt := u.tasks(t)["stuck-0"].Steps[2].Undo.Attempt
	u.tool(t, 0, by("resubmit", "stuck-0")...)
	u.await(t, "stuck-0 to be held again", func(tasks map[string]events.TaskView) bool {
		v := tasks["stuck-0"]
		return v.State == events.StateError && v.Steps[2].Undo.Attempt > attempt
	})
}

// garbage is what an inbox has to bear: it leaves dead letters, and one forward.
func garbage(t *testing.T, u *up) {
	t.Helper()
	cfg := kafka.Config{Brokers: []string{u.addr}, Namespace: events.DefaultNamespace, ClientID: "golden"}
	p, err := kafka.OpenProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	tasks, replies := cfg.Namespace.Inbox(events.Tasks), cfg.Namespace.Inbox(events.Replies)
	keyless := order("keyless", "parcel", demo.CardWorks, 10, "", "")
	away := (events.Partition([]byte("keyless"), partitions) + 1) % partitions
	for _, r := range []events.Record{
		{Topic: tasks, Key: []byte("bad"), Value: []byte(`{"id":`)},
		{Topic: tasks, Key: []byte("other"), Value: []byte(order("named", "parcel", demo.CardWorks, 10, "", ""))},
		{Topic: tasks, Key: []byte("p-0"), Value: []byte(order("p-0", "parcel", demo.CardWorks, 11, "", ""))}, // another body
		{Topic: tasks, Key: []byte("unknown"), Value: []byte(order("unknown", "no-such-workflow", demo.CardWorks, 10, "", ""))},
		{Topic: replies, Key: []byte("p-0"), Value: []byte(`{}`)}, // without headers
		{Topic: tasks, Partition: away, Value: []byte(keyless)},
	} {
		if r.Key != nil {
			r.Partition = events.Partition(r.Key, partitions)
		}
		if err := p.Send(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	u.awaitStates(t, map[string]events.TaskState{"keyless": events.StateProcessed})
}

// leftOpen leaves tasks in each kind of wait: for an operator, for the end of a
// cool-down, for a reply that doesn't come, of a step and of an undo.
func leftOpen(t *testing.T, u *up) {
	t.Helper()
	submit(t, u,
		order("after-0", "parcel", demo.CardWorks, 150, "", ""), order("after-1", "order", demo.CardDeclined, 10, "", `,"reply_to":"shop.status"`),
		order("cools-0", "slow", demo.CardDown, 150, "", ""), order("cools-1", "slow", demo.CardDown, 10, "", ""),
		order("runs-0", "slow", demo.CardWorks, 150, byCourier, ""), order("runs-1", "slow", demo.CardWorks, 10, byCourier, ""),
		order("undoes-0", "slow", demo.CardWorks, 150, byCourier, ""),
		order(waits, "kinds", demo.CardWorks, 150, `,"approve":true`, ""), order(runsChild, "kinds", demo.CardWorks, 150, byCourier, ""))
	running := func(v events.TaskView) bool { return len(v.Steps) > 5 && v.Steps[5].State == events.StepRunning }
	u.await(t, "the last tasks to end or wait", func(tasks map[string]events.TaskView) bool {
		return tasks["after-0"].State == events.StateProcessed && tasks["after-1"].State == events.StateUndone &&
			cooling(tasks["cools-0"]) && cooling(tasks["cools-1"]) &&
			running(tasks["runs-0"]) && running(tasks["runs-1"]) && running(tasks["undoes-0"]) &&
			slices.ContainsFunc(tasks[waits].Steps, func(s events.StepView) bool { return s.ID == "approve" && s.State == events.StepRunning }) &&
			running(tasks[childRuns])
	})
	u.tool(t, 0, "task", "cancel", "undoes-0", "--who", "operator", "--why", "golden data")
	u.awaitStates(t, map[string]events.TaskState{"undoes-0": events.StateUndoing})
}

// dump is the whole log of a data directory, as it was left.
func dump(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteLog(&b, readAll(t, startBroker(t, dir))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// startBroker starts today's embedded broker on the log of a data directory.
func startBroker(t *testing.T, dir string) kafka.Config {
	t.Helper()
	broker, err := embedded.Start(embedded.Options{DataDir: filepath.Join(dir, "kafka")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := broker.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := broker.Config()
	cfg.Namespace = events.DefaultNamespace
	return cfg
}

func writeGzip(t *testing.T, path string, content []byte) {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func writeArchive(t *testing.T, path, dir string) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	writeGzip(t, path, b.Bytes())
}

// addToManifest notes the sums of the files that were made.
func addToManifest(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(manifest, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil {
			_, err = fmt.Fprintf(f, "%x  %s\n", sha256.Sum256(b), strings.TrimPrefix(path, "testdata/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
