package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

var batchTasks = flag.Int("batch-tasks", 500, "number of tasks of TestBatchSurvivesKill")

// bank charges orders, each once, unless it is down.
type bank struct {
	mu      sync.Mutex
	left    int // charges until it is down
	charged map[string]int
	changed chan struct{} // closed, and replaced, at each charge
}

func newBank() *bank { return &bank{charged: map[string]int{}, changed: make(chan struct{})} }

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Order string `json:"order"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Order == "" {
		http.Error(w, "no order", http.StatusBadRequest)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/note") {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{}`)) // the agent may have been killed
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 {
		http.Error(w, "the bank is down", http.StatusUnprocessableEntity)
		return
	}
	b.left--
	b.charged[in.Order]++
	close(b.changed)
	b.changed = make(chan struct{})
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{}`)) // the agent may have been killed
}

// chargesUntilDown sets how many charges it makes from now on.
func (b *bank) chargesUntilDown(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = n
}

// await waits until the bank has made so many charges.
func (b *bank) await(t *testing.T, charges int) {
	t.Helper()
	late := time.After(suite.Patience)
	for {
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		_, n := b.sum()
		if n >= charges {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%d charges after %s, want %d", n, suite.Patience, charges)
		}
	}
}

func (b *bank) sum() (orders, charges int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.charged {
		charges += n
	}
	return len(b.charged), charges
}

// TestBatchSurvivesKill: tasks are held by one cause. A batch tries a canary, then the rest at 200 a second, and stops when
// the fault recurs. A migration and its way back do what their dry runs said while the scheduler is killed. The next batch
// is continued by another console when the one that sends is killed. Each task has a result, and each got its command once.
// -batch-tasks sets their number.
func TestBatchSurvivesKill(t *testing.T) {
	suite.NeedAll(t, "processes that are started and killed")
	t.Parallel()
	tasks, dir := *batchTasks, t.TempDir()
	definition, orders := filepath.Join(dir, "held.yaml"), filepath.Join(dir, "orders.jsonl")
	text := heldWorkflow
	if err := os.WriteFile(definition, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	for i := range tasks {
		fmt.Fprintf(&lines, `{"id":"k-%d","workflow":"held","version":1,"input":%s}`+"\n", i, [2]string{`{}`, `{"noted":true}`}[i%2])
	}
	if err := os.WriteFile(orders, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	service := newBank()
	server := httptest.NewServer(service)
	defer server.Close()
	alone := writeFile(t, "alone.yaml", []byte(strings.Replace(text, "workflow: held", "workflow: alone", 1)))
	two := writeFile(t, "held2.yaml", []byte(heldWorkflow2()))
	s := onBroker(t, kafkatest.Kafka(t), definition, two, alone)
	seen := observe(t, s)
	scheduler := s.start(t, "scheduler", "--workers", "2", "--session-timeout", shortSession)
	s.start(t, "supervisor")
	s.start(t, "agent", "http", "--agent", "payments", "--url", server.URL+"/{operation}", "--concurrency", "64")
	commandIsKilled(t, s, service)
	addresses := []string{freeAddress(t), freeAddress(t)}
	first := s.start(t, "console", "--listen", addresses[0], "--allow-loopback-operator")
	first.await(t, "this process sends the commands of batches")
	second := s.start(t, "console", "--listen", addresses[1], "--allow-loopback-operator")

	s.waybill(t, exitError, "submit", "-f", orders, "--wait", "--timeout", "10m")
	api := [2]*consoleapi.Client{}
	for i, addr := range addresses {
		var err error
		if api[i], err = consoleapi.New(consoleapi.Config{URL: "http://" + addr}); err != nil {
			t.Fatal(err)
		}
	}
	rate, canary := 200.0, 1
	order := func(id, filter string) consoleapi.BatchAnswer {
		t.Helper()
		a, err := api[1].OrderBatch(t.Context(), &consoleapi.BatchCommand{ID: id, Command: "resubmit", Filter: filter, Reason: "the bank is back", Rate: &rate, Canary: &canary, CanaryWithin: "10m"})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	// It recurs.
	service.chargesUntilDown(tasks / 5)
	if a := order("recurs", "workflow:held"); a.Selected != tasks {
		t.Fatalf("%d tasks are held, of %d: %+v", a.Selected, tasks, a)
	}
	b := awaitBatch(t, api[0], "recurs", func(b *consoleapi.Batch) bool { return b.EndedAt != nil })
	if b.State != consoleapi.BatchStopped || b.Counts[batch.Waiting] == 0 || b.Counts[batch.Recurred] == 0 {
		t.Fatalf("it recurs: %+v", b)
	}
	t.Logf("%d tasks; the first batch: %v; %s", tasks, b.Counts, b.Why)

	// It is fixed, and the console that sends is killed.
	awaitProcessed := func(processed int) {
		t.Helper()
		seen.await(t, fmt.Sprintf("%d tasks processed, the others held", processed), func() bool {
			return seen.counts[events.StateProcessed] == processed+aloneTasks && seen.counts[events.StateError] == tasks-processed
		})
	}
	awaitProcessed(tasks / 5)
	held := tasks - tasks/5
	migrationsSurviveKill(t, s, scheduler, api[1], held)
	service.chargesUntilDown(tasks)
	rate = 40 // so that a busy machine sees it before it is over
	order("rest", "workflow:held state:held")
	b = awaitBatch(t, api[1], "rest", func(b *consoleapi.Batch) bool { return b.Counts[batch.Waiting] <= held*3/4 })
	first.kill()
	killed := time.Now()
	if b.EndedAt != nil || b.Counts[batch.Waiting] == 0 {
		t.Fatalf("it wasn't killed in the middle: %+v", b)
	}
	t.Logf("killed -9 when %d of %d tasks were waiting: %v", b.Counts[batch.Waiting], held, b.Counts)
	second.await(t, "this process sends the commands of batches")
	t.Logf("the other console sends %.1f s after the kill", time.Since(killed).Seconds())
	b = awaitBatch(t, api[1], "rest", func(b *consoleapi.Batch) bool { return b.EndedAt != nil })
	t.Logf("it ended %.1f s after the kill: %v", time.Since(killed).Seconds(), b.Counts)
	if b.State != consoleapi.BatchDone || b.Tasks != held || b.Counts[batch.Passed]+b.Counts[batch.Accepted] != held {
		t.Errorf("%+v", b)
	}
	awaitProcessed(tasks)
	checkBatchEffects(t, s, api[1], tasks, held)
	if orders, charges := service.sum(); orders != tasks || charges != tasks {
		t.Errorf("%d charges of %d orders, of %d", charges, orders, tasks)
	}
}

// aloneTasks is the number of tasks of commandIsKilled.
const aloneTasks = 20

// commandIsKilled: without a console the command runs the batch in its process. When it is killed, and repeated with the same
// id, the batch goes on.
func commandIsKilled(t *testing.T, s *system, service *bank) {
	t.Helper()
	const tasks = aloneTasks
	service.chargesUntilDown(0)
	var lines bytes.Buffer
	for i := range tasks {
		fmt.Fprintf(&lines, `{"id":"c-%d","workflow":"alone","input":{}}`+"\n", i)
	}
	s.waybill(t, exitError, "submit", "-f", writeFile(t, "orders", lines.Bytes()), "--wait")
	service.chargesUntilDown(tasks)
	command := []string{"resubmit", "--filter", "workflow:alone", "--batch", "alone", "--why", "a test", "--yes", "--api", "off", "-o", "json"}
	first := startProcess(t, s.env(), append(command, "--rate", "2")...)
	service.await(t, tasks/4)
	first.kill()
	if _, charges := service.sum(); charges == tasks {
		t.Fatal("it wasn't killed in the middle")
	}
	var results []batch.Result
	if err := json.Unmarshal([]byte(s.waybill(t, exitOK, command...)), &results); err != nil || len(results) != tasks {
		t.Errorf("%d results, %v", len(results), err)
	}
	service.await(t, tasks)
	if orders, charges := service.sum(); orders != tasks || charges != tasks {
		t.Fatalf("%d charges of %d orders, of %d", charges, orders, tasks)
	}
	service.charged = map[string]int{} // nothing else runs
}

// checkBatchEffects checks that each task of the batch has a result, and exactly one effect of its command.
func checkBatchEffects(t *testing.T, s *system, api *consoleapi.Client, tasks, held int) {
	t.Helper()
	results, err := api.BatchResults(t.Context(), "rest")
	if err != nil || len(results) != held {
		t.Fatalf("%d results of %d tasks, %v", len(results), held, err)
	}
	effects, export := map[string]int{}, filepath.Join(t.TempDir(), "log.jsonl")
	s.waybill(t, exitOK, "export", "--out", export)
	log, err := os.ReadFile(export)
	if err != nil {
		t.Fatal(err)
	}
	all := string(log)
	for _, r := range results {
		if r.Status != batch.Passed && r.Status != batch.Accepted || r.RequestID != batch.RequestID("rest", r.Task) {
			t.Errorf("%+v", r)
		}
		effects[strconv.Itoa(strings.Count(all, r.RequestID))]++
	}
	if len(effects) != 1 || effects["1"] != held {
		t.Errorf("events by command: %v, of %d", effects, held)
	}
	t.Logf("%d tasks: %d have a result of the second batch, and each of these has one event of its command", tasks, held)
}
