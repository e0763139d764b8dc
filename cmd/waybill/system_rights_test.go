package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill"
	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// rightsPage is the page with the table of rights.
const rightsPage = "docs/operate/security.md"

// rightsUsers maps the first column of the table to users. One more user has the rights of a supervisor except those on
// snapshots.
var rightsUsers = map[string]string{
	"scheduler": "scheduler", "supervisor": "supervisor", "`agent http`": "agent", "an agent of yours": "mine", "console": "console", "who submits": "shop", "who sends signals": "approver",
	"operators": "operator", "`topics create`, `workflow apply`, `intake apply`": "admin", "`intake run`": "taker", "`workflow deprecate`": "deprecater", "`workflow delete`": "deleter",
}

const (
	notOfSnapshots = "unsnapshot"
	rightsReplyTo  = "shop.orders"
	rightsIntake   = "shop.incoming"
)

var (
	rightsOf = regexp.MustCompile(`((?:Read|Write|Create|Delete|Describe|DescribeConfigs)(?:, (?:Read|Write|Create|Delete|Describe|DescribeConfigs))*): (.*)`)
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// tableOfRights returns the rights in the table, by user.
func tableOfRights(t *testing.T) map[string][]kafkatest.Right {
	t.Helper()
	rights := map[string][]kafkatest.Right{}
	_, table, found := strings.Cut(readPage(t, rightsPage).prose, "| who | topics | groups, transactional ids |\n|---|---|---|\n")
	if !found {
		t.Fatal(rightsPage + " has no table of rights")
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 3 {
			break
		}
		user, known := rightsUsers[cells[0]]
		if !known {
			t.Errorf("%s: no test tries the rights of %s", rightsPage, cells[0])
		}
		ns := events.DefaultNamespace
		for _, sentence := range strings.Split(cells[1], ". ") {
			rights[user] = append(rights[user], rightsIn(ns, sentence, kafkatest.Topic)...)
		}
		for _, sentence := range strings.Split(cells[2], ". ") {
			of := kafkatest.Group
			if strings.Contains(sentence, ": ids ") {
				of = kafkatest.TransactionalID
			}
			rights[user] = append(rights[user], rightsIn(ns, sentence, of)...)
		}
	}
	return rights
}

// rightsIn parses "Read, Write: `events`, `requests.*`".
func rightsIn(ns, sentence string, of kafkatest.Resource) (rights []kafkatest.Right) {
	m := rightsOf.FindStringSubmatch(sentence)
	if m == nil {
		return nil
	}
	for _, name := range quoted.FindAllStringSubmatch(m[2], -1) {
		for _, one := range namedBy(name[1]) {
			for _, op := range strings.Split(m[1], ", ") {
				r := kafkatest.Right{Resource: of, Operation: op, Name: one}
				r.Name, r.Prefix = strings.CutSuffix(r.Name, "*")
				if one != rightsReplyTo {
					r.Name = ns + r.Name
				}
				rights = append(rights, r)
			}
		}
	}
	return rights
}

// namedBy returns the resource names that a name in the table stands for.
func namedBy(name string) []string {
	switch prefix, ofAgent := strings.CutSuffix(name, "NAME"); {
	case name == "reply_to":
		return []string{rightsReplyTo}
	case ofAgent:
		return []string{prefix + "inventory", prefix + "payments", prefix + "shipping"}
	}
	return []string{name}
}

// as is the system as one user accesses it.
type as struct {
	system
	user, password string
}

func (a *as) env() []string {
	if a.user == "" {
		return a.system.env() // the superuser
	}
	return append(a.system.env(), "WAYBILL_SASL_MECHANISM=PLAIN", "WAYBILL_SASL_USER="+a.user, "WAYBILL_SASL_PASSWORD_FILE="+a.password)
}

func (a *as) start(t *testing.T, args ...string) *process {
	t.Helper()
	return startRole(t, a.env(), args...)
}

// waybill runs a command that must end with the code.
func (a *as) waybill(t *testing.T, code int, args ...string) string {
	t.Helper()
	out, note, got := endsWith(t, code, a.env(), args...)
	if got != code {
		t.Errorf("as %s: waybill %s: exit code %d, want %d\n%s%s", a.user, strings.Join(args, " "), got, code, out, note)
	}
	return out
}

// guarded starts a cluster where each user has exactly the rights in the table.
func guarded(t *testing.T) map[string]*as {
	t.Helper()
	rights := tableOfRights(t)
	for _, r := range rights["supervisor"] {
		if r.Name != events.DefaultNamespace+"snapshots" {
			rights[notOfSnapshots] = append(rights[notOfSnapshots], r)
		}
	}
	foreign := func(operation string) kafkatest.Right {
		return kafkatest.Right{Resource: kafkatest.Topic, Operation: operation, Name: rightsIntake}
	}
	rights["taker"] = append(rights["taker"], foreign("Read")) // "each intake's topic"
	for _, user := range []string{"console", "operator"} {
		rights[user] = append(rights[user], foreign("Describe")) // likewise
	}
	users := []string{notOfSnapshots}
	for _, u := range rightsUsers {
		users = append(users, u)
	}
	c := kafkatest.KafkaCluster(t, kafkatest.Guarded(users...))
	password := writeFile(t, "password", []byte(kafkatest.Password+"\n"))
	if err := os.Chmod(password, 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]*as{}
	for _, u := range users {
		kafkatest.FromCluster(c).Permit(t, u, rights[u]...)
		all[u] = &as{system{broker: &kafkatest.Broker{Kind: kafkatest.KafkaKind, Addrs: kafkatest.GuardedAddrs(c)}, ns: events.DefaultNamespace, partitions: 1}, u, password}
	}
	all["root"] = &as{system: system{broker: kafkatest.FromCluster(c), ns: events.DefaultNamespace, partitions: 1}}
	return all
}

// TestRightsOfThePageAreEnough: with exactly the rights in the table, each user can do its work. A supervisor with an
// empty disk starts from a snapshot. One that may not read snapshots says so, and reads the log.
func TestRightsOfThePageAreEnough(t *testing.T) {
	t.Parallel() // it has a cluster of its own
	by := guarded(t)
	root, admin, shopper, operator := by["root"], by["admin"], by["shop"], by["operator"]
	create := []string{"topics", "create", "--partitions", "1", "--agent-partitions", "1"}
	for _, name := range demo.ServiceNames {
		create = append(create, "--agent", name)
	}
	admin.waybill(t, exitOK, create...)
	admin.waybill(t, exitOK, "workflow", "apply", quickWorkflow(t, "quick", "hold", callAttempts))
	by["scheduler"].start(t, "scheduler", "--create-reply-to", "--session-timeout", shortSession)
	supervisor := by["supervisor"].start(t, "supervisor", "--session-timeout", shortSession)
	shop := openShop(t, nil)
	by["mine"].serve(t, "shipping")
	for _, name := range []string{"inventory", "payments"} {
		by["agent"].start(t, "agent", "http", "--agent", name, "--url", shop.url+"/"+name+"/{operation}", "--session-timeout", shortSession, "--breaker-failures", "4000000000")
	}
	console := by["console"].start(t, "console", "--listen", "127.0.0.1:0", "--allow-loopback-operator")
	if t.Failed() {
		return
	}
	rightsOfSchedules(t, admin, operator)
	rightsOfIntakes(t, by)

	// Submit large orders until a snapshot is written.
	pad, snapshot := strings.Repeat("x", 300<<10), func(r events.Record) bool { return string(r.Key) == events.SnapshotMetaKey }
	for n := 0; !slices.ContainsFunc(root.broker.ReadTopic(t, root.ns.Snapshots()), snapshot); n++ {
		if n == 20 {
			t.Fatal("no snapshot is written")
		}
		var file bytes.Buffer
		for i := range 5 {
			fmt.Fprintf(&file, `{"id":"o-%d-%d","workflow":"quick","reply_to":%q,"input":{"items":[%q],"total":4.5,"card":"tok_down","address":"x"}}`+"\n", n, i, rightsReplyTo, pad)
		}
		shopper.waybill(t, exitOK, "submit", "-f", writeFile(t, "orders.jsonl", file.Bytes()), "--wait", "--timeout", "1m")
	}
	supervisor.stop(t)
	for user, says := range map[string]string{"supervisor": "deadlines taken from the scheduler's snapshot", notOfSnapshots: "the log is read instead"} {
		s := by[user].start(t, "supervisor", "--session-timeout", shortSession)
		t.Log(s.await(t, says))
		shopper.waybill(t, exitOK, "submit", "--workflow", "quick", "--id", "after-"+user, "--input", `{"items":[],"total":4.5,"card":"tok_down","address":"x"}`, "--wait", "--timeout", "1m")
		s.stop(t)
	}

	// An operator resubmits a held order; and an order of a workflow that is applied later.
	shopper.waybill(t, exitRefused, "submit", "--workflow", "late", "--id", "refused", "--input", `{"items":[],"total":4.5,"card":"tok","address":"x"}`, "--wait", "--timeout", "1m")
	shopper.waybill(t, exitError, "submit", "--workflow", "quick", "--id", "held", "--input", `{"items":[],"total":4.5,"card":"tok_declined","address":"x"}`, "--wait", "--timeout", "1m")
	operator.waybill(t, exitOK, "resubmit", "held", "--why", "again")
	operator.waybill(t, exitError, "task", "wait", "held", "--timeout", "1m")
	operator.waybill(t, exitOK, "task", "cancel", "held", "--keep", "--why", "enough")
	for _, args := range []string{"task list --state cancelled", "task get held", "task why held", "timeline held", "alerts", "deadletters", "replay held", "replay --at 1s", "export held",
		"workflow list", "topics check", "verify"} {
		operator.waybill(t, exitOK, strings.Fields(args)...)
	}
	root.waybill(t, exitOK, "workflow", "apply", quickWorkflow(t, "late", "hold", callAttempts))
	for _, args := range []string{"deadletters redrive --reason unknown_workflow --execute", "task wait refused --timeout 1m"} {
		operator.waybill(t, exitOK, strings.Fields(args)...)
	}
	if out := operator.waybill(t, exitOther, "doctor", "-o", "json"); !strings.Contains(out, `"supervisor"`) || strings.Contains(out, "may not see it") { // no supervisor runs
		t.Errorf("doctor: %s", out)
	}
	if !slices.ContainsFunc(root.broker.ReadTopic(t, rightsReplyTo), func(r events.Record) bool { return bytes.Contains(r.Value, []byte(`"processed"`)) }) {
		t.Errorf("%s was told of no order", rightsReplyTo)
	}
	rightsOfAConsole(t, consoleAt(t, console))
	by["approver"].waybill(t, exitOK, "signal", "held", "approved", "--data", "true")
	rightsOfAGoClient(t, shopper)
	// Without a console, the command of an operator runs its batch.
	console.stop(t)
	shopper.waybill(t, exitError, "submit", "--workflow", "quick", "--id", "by-batch", "--input", `{"items":[],"total":4.5,"card":"tok_declined","address":"x"}`, "--wait", "--timeout", "1m")
	operator.waybill(t, exitOK, "cancel", "--keep", "--filter", "id:by-batch", "--why", "enough", "--yes", "--api", "off")
	by["deprecater"].waybill(t, exitOK, "workflow", "deprecate", "late", "1", "--why", "a test")
	by["deleter"].waybill(t, exitOK, "workflow", "delete", "late/1", "--yes")
}

// rightsOfSchedules applies a schedule and triggers it: the supervisor submits its task.
func rightsOfSchedules(t *testing.T, admin, operator *as) {
	t.Helper()
	text := "schedule: yearly\ncron: 0 0 1 1 *\nsubmit:\n  workflow: quick\n  input: {items: [], total: 4.5, card: tok, address: x}\n"
	admin.waybill(t, exitOK, "schedule", "apply", writeFile(t, "yearly.yaml", []byte(text)))
	var started triggered
	if err := json.Unmarshal([]byte(operator.waybill(t, exitOK, "schedule", "trigger", "yearly", "--why", "a test", "-o", "json")), &started); err != nil {
		t.Fatal(err)
	}
	operator.waybill(t, exitOK, "task", "wait", started.Task, "--timeout", "1m")
	operator.waybill(t, exitOK, "schedule", "get", "yearly")
	admin.waybill(t, exitOK, "schedule", "pause", "yearly")
}

// rightsOfIntakes runs an intake, which submits an order, writes a dead letter, and sends a signal.
func rightsOfIntakes(t *testing.T, by map[string]*as) {
	t.Helper()
	root, admin := by["root"], by["admin"]
	root.broker.CreateTopics(t, 1, rightsIntake)
	for _, value := range []string{`{"id":"taken","paid":false}`, `{"paid":false}`, `{"id":"taken","paid":true}`} {
		root.broker.Produce(t, events.Record{Topic: rightsIntake, Partition: 0, Value: []byte(value)})
	}
	orders := "intake: orders\ntopic: shop.incoming\nwhen: '${ !value.paid }'\nsubmit:\n  workflow: quick\n  id: '${ value.id }'\n  input: {items: [], total: 4.5, card: tok, address: x}\n"
	paid := "intake: paid\ntopic: shop.incoming\nwhen: '${ value.paid }'\nsignal: {task: nobody, name: paid}\n"
	admin.waybill(t, exitOK, "intake", "apply", writeFile(t, "orders.intake.yaml", []byte(orders)), writeFile(t, "paid.intake.yaml", []byte(paid)))
	taker := by["taker"].start(t, "intake", "run", "--session-timeout", shortSession)
	root.broker.AwaitRecords(t, 2, root.ns.Deadletters()) // of the record without an id, and of the signal to no task
	by["operator"].waybill(t, exitOK, "task", "wait", "taken", "--timeout", "1m")
	admin.waybill(t, exitOK, "intake", "pause", "orders")
	taker.stop(t)
}

// rightsOfAConsole calls all endpoints, and submits and cancels an order.
func rightsOfAConsole(t *testing.T, c *consoleClient) {
	for _, path := range []string{"/tasks?min_offset=end", "/tasks/held?min_offset=end", "/tasks/held/timeline", "/tasks/held/why", "/tasks/held/export", "/workflows", "/agents", "/partitions", "/alerts", "/deadletters", "/intakes/orders"} {
		c.get(t, http.StatusOK, path, nil)
	}
	c.post(t, http.StatusCreated, "/tasks", `{"id":"by-console","workflow":"quick","input":{"items":[],"total":4.5,"card":"tok_declined","address":"x"}}`, nil)
	c.await(t, "the order held", "/tasks/by-console", func(body string) bool { return strings.Contains(body, `"state":"error"`) })
	c.post(t, http.StatusCreated, "/batches", `{"id":"by-console","command":"resubmit","filter":"id:by-console","canary":0,"reason":"again"}`, nil)
	c.await(t, "the batch done", "/batches/by-console", func(body string) bool { return strings.Contains(body, `"state":"done"`) })
	c.post(t, http.StatusOK, "/tasks/by-console/cancel", `{"reason":"enough","keep":true}`, nil)
	c.post(t, http.StatusOK, "/deadletters/redrive", `{"since":"24h"}`, nil)
}

// goConfig is the configuration of a Go client of this user.
func (a *as) goConfig() waybill.Config {
	return waybill.Config{Brokers: a.broker.Addrs, SASL: waybill.SASL{Mechanism: "PLAIN", User: a.user, Password: kafkatest.Password}}
}

// serve runs a Go agent until the test ends.
func (a *as) serve(t *testing.T, agentName string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- waybill.Serve(ctx, a.goConfig(), agentName, agent.HandlerFunc(func(context.Context, agent.Request) (any, error) {
			return map[string]string{"tracking": "t"}, nil
		}))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("as %s: %v", a.user, err)
		}
	})
}

// rightsOfAGoClient submits an order and waits for it.
func rightsOfAGoClient(t *testing.T, a *as) {
	t.Helper()
	client, err := waybill.Open(t.Context(), a.goConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	order := waybill.Order{ID: "by-go", Workflow: "quick", Input: map[string]any{"items": []string{}, "total": 4.5, "card": demo.CardWorks, "address": "x"}}
	if err := client.Submit(ctx, order); err != nil {
		t.Fatal(err)
	}
	if task, err := client.Wait(ctx, order.ID); err != nil || task.State != waybill.Processed {
		t.Errorf("as %s: %v, %v", a.user, task.State, err)
	}
}
