package console

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/workflow"
)

var (
	scaleEnded    = flag.Int("ended", 20_000, "BenchmarkScreens: tasks that have ended")
	scaleOpen     = flag.Int("open", 2_000, "BenchmarkScreens: open tasks")
	scaleRequests = flag.Int("requests", 100, "BenchmarkScreens: requests to each route")
)

const (
	scalePartitions = 12
	scaleWidth      = 200           // tasks that run concurrently
	scaleKeep       = 100           // of this many tasks, BenchmarkScreens keeps the events of one
	scaleSaveBytes  = 2 << 20       // as the index saves
	scaleHeldOf     = 20            // of this many open tasks, one is held
	scaleSpan       = 2 * time.Hour // complete_by of the tasks is within it from scaleEnd on
)

// scaleBegin and scaleEnd are when the system begins, and when about its last event is written.
var (
	scaleBegin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	scaleEnd   = scaleBegin.Add(23 * time.Hour)
)

// scale is the log, the cluster and the index of a system with many tasks. It has the events of some of them only.
type scale struct {
	*recording
	tb       testing.TB
	plans    []*events.Plan
	versions []*workflow.Definition
	views    []*projections.Timelines
	store    *projections.Store
	dir      string // of the store
	keep     int    // of this many tasks, the events of one are kept
	offsets  []int64
	kept     map[int32]map[int64]events.Record
	ids      []string // of tasks whose events are kept
	rnd      *rand.Rand
	applied  int
	took     time.Duration // to apply and save
}

// scaleWorkflow makes a definition with a chain of steps.
func scaleWorkflow(tb testing.TB, name string, version, steps int) (*workflow.Definition, *events.Plan) {
	text := fmt.Sprintf("workflow: %s\nversion: %d\ncomplete_within: 1h\non_error: hold\ndefaults:\n  complete_within: 10s\n  retry: {max_attempts: 5, backoff: 200ms}\nsteps:\n", name, version)
	var plan []events.PlanStep
	for i := range steps {
		id := fmt.Sprintf("step-%d", i)
		s := events.PlanStep{ID: id, Agent: fmt.Sprint("agent-", i), Operation: "do", Attempts: events.Attempts{CompleteWithin: 10 * time.Second, MaxAttempts: 5}}
		text += fmt.Sprintf("  %s: {agent: agent-%d, operation: do", id, i)
		if i > 0 {
			s.Needs, text = []int{i - 1}, text+fmt.Sprintf(", needs: [step-%d]", i-1)
		}
		plan, text = append(plan, s), text+"}\n"
	}
	return definitionOf(tb, text), events.NewPlan(events.OnErrorHold, time.Hour, plan)
}

func newScale(tb testing.TB, ended, open, keep int) *scale {
	dir := tb.TempDir()
	id := projections.Identity{ClusterID: "c", Namespace: events.DefaultNamespace, Partitions: scalePartitions, View: projections.ViewTimelines}
	store, err := projections.Open(dir, id, projections.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	w := &scale{tb: tb, store: store, dir: dir, keep: keep, offsets: make([]int64, scalePartitions), kept: map[int32]map[int64]events.Record{}, rnd: rand.New(rand.NewPCG(1, 1)),
		recording: &recording{cluster: "c", partitions: scalePartitions, within: defaultTimeouts, definitions: map[string]*workflow.Definition{}}}
	w.now = scaleBegin
	for i, steps := range []int{3, 5, 8} {
		d, plan := scaleWorkflow(tb, fmt.Sprint("flow-", i), 1+i, steps)
		w.versions, w.plans = append(w.versions, d), append(w.plans, plan)
		w.definitions[events.DefinitionKey(d.Name, d.Version)] = d
		w.read = append(w.read, Workflow{Name: d.Name, Version: d.Version, Agents: d.Agents()})
	}
	for p := range int32(scalePartitions) {
		v, err := store.Timelines(p)
		if err != nil {
			tb.Fatal(err)
		}
		w.views, w.kept[p] = append(w.views, v), map[int64]events.Record{}
	}
	gap := 24 * time.Hour / time.Duration(10*max(1, (ended+open)/scaleWidth))
	for from := 0; from < ended+open; from += scaleWidth {
		w.batch(from, min(from+scaleWidth, ended+open), ended, gap)
	}
	for _, v := range w.views {
		w.save(v)
	}
	if err := store.Flush(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for _, v := range w.views {
			v.Close()
		}
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	return w
}

// scaleTask is a task whose events are written.
type scaleTask struct {
	id    string
	flow  int
	n     int
	p     int32
	seq   uint64
	prev  string
	until int // the stage after which nothing comes
	held  bool
}

// batch writes the events of some tasks, which run concurrently. Those from ended on don't end.
func (w *scale) batch(from, to, ended int, gap time.Duration) {
	tasks := make([]scaleTask, 0, to-from)
	for n := from; n < to; n++ {
		t := scaleTask{id: fmt.Sprintf("order-%09d", n*7919%1_000_000_007), n: n, flow: n % len(w.plans), until: 100}
		t.p = events.Partition([]byte(t.id), scalePartitions)
		if n >= ended {
			t.until, t.held = 1+w.rnd.IntN(2*len(w.plans[t.flow].Steps)-1), n%scaleHeldOf == 0
		}
		if n%w.keep == 0 {
			w.ids = append(w.ids, t.id)
		}
		tasks = append(tasks, t)
	}
	for stage := range 19 { // 2 for each step of the longest, and those of the task
		for i := range tasks {
			w.now = w.now.Add(gap / scaleWidth / 2)
			if tasks[i].until >= stage {
				w.stage(&tasks[i], stage)
			}
		}
	}
}

// stage writes what happens to a task at a stage.
func (w *scale) stage(t *scaleTask, stage int) {
	d, plan := w.versions[t.flow], w.plans[t.flow]
	steps := len(plan.Steps)
	switch {
	case stage == 0:
		w.add(t, 0, &events.TaskReceived{Workflow: d.Name, Version: d.Version, Digest: "d", Plan: plan, Input: []byte(`{"items":["a","b"],"total":100}`),
			Labels: map[string]string{"region": fmt.Sprint(t.n % 5), "shop": fmt.Sprint(t.n % 1000)}})
		w.add(t, scaleEnd.Add(time.Duration(w.rnd.Int64N(int64(scaleSpan)))).Sub(w.now), &events.TaskStarted{})
	case stage > 2*steps:
		if stage == 2*steps+1 {
			w.add(t, 0, &events.TaskProcessed{Output: []byte(`{"tracking":"t"}`)})
		}
	case stage == t.until && t.held:
		w.hold(t, plan.Steps[(stage-1)/2].ID, stage%2 == 1)
	case stage%2 == 1:
		w.start(t, plan.Steps[stage/2].ID)
	default:
		w.add(t, 0, &events.AttemptCompleted{Kind: events.Do, Step: plan.Steps[stage/2-1].ID, Attempt: 1, Output: []byte(`{"ok":true}`)})
	}
}

func (w *scale) start(t *scaleTask, step string) {
	w.add(t, 10*time.Second, &events.AttemptStarted{Kind: events.Do, Step: step, Attempt: 1, Agent: "agent" + step[4:], Operation: "do", Key: "k", Input: []byte(`{"order":"o"}`)})
}

// hold holds a task with one of some hundred errors. start says that the step hasn't started.
func (w *scale) hold(t *scaleTask, step string, start bool) {
	if start {
		w.start(t, step)
	}
	broken := &events.Error{Code: fmt.Sprint("code_", t.n%7), Message: "failed by " + strings.Repeat("x", 1+t.n%20) + fmt.Sprintf(" with %d", t.n), Step: step}
	w.add(t, 0, &events.AttemptRejected{Kind: events.Do, Step: step, Attempt: 1, Error: broken})
	w.add(t, 0, &events.TaskHeld{Error: broken})
}

// add writes an event. due is when its timer is due; 0: it arms none.
func (w *scale) add(t *scaleTask, due time.Duration, f events.Fact) {
	t.seq++
	e := &events.Event{Task: t.id, Seq: t.seq, Prev: t.prev, At: events.Millis(w.now), Epoch: 1, Cause: events.Cause{Partition: t.p, Offset: w.offsets[t.p]}, Fact: f}
	if due > 0 {
		e.Due, e.Policy = events.Millis(w.now.Add(due)), &events.Policy{Timer: f.About().Arms, OnError: events.OnErrorHold}
	}
	value := e.Value()
	t.prev = events.Hash(f.Type(), value)
	r := e.Record(events.DefaultNamespace, "s", t.p, value)
	r.Offset = w.offsets[t.p]
	w.offsets[t.p]++
	if t.n%w.keep == 0 {
		w.kept[t.p][r.Offset] = r
	}
	begun, v := time.Now(), w.views[t.p]
	if err := v.Apply(&r); err != nil {
		w.tb.Fatal(err)
	}
	w.took += time.Since(begun)
	if w.applied++; v.ChangedBytes() > scaleSaveBytes {
		w.save(v)
	}
}

func (w *scale) save(v *projections.Timelines) {
	begun := time.Now()
	v.Save()
	w.took += time.Since(begun)
}

// ReadAt returns events that were kept.
func (w *scale) ReadAt(_ context.Context, p int32, offsets []int64) (found []events.Record, corruption []Corruption, err error) {
	for _, offset := range slices.Sorted(slices.Values(offsets)) {
		if r, is := w.kept[p][offset]; is {
			found = append(found, r)
		}
	}
	return found, nil, nil
}

// scaleIndex finds tasks as the index does.
type scaleIndex struct {
	fakeIndex
	mu sync.Mutex
	of *scale
}

func (x *scaleIndex) Find(p int32, task string) (projections.Found, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.of.views[p].Find(task), true
}

// console returns the handler of a console of the system.
func (w *scale) console() http.Handler {
	a := &scaleIndex{fakeIndex: fakeIndex{w: w.recording, Store: w.store, next: map[int32]int64{}}, of: w}
	for p, next := range w.offsets {
		a.next[int32(p)] = next
	}
	c := New(Config{ClusterID: "c", Namespace: events.DefaultNamespace, Partitions: scalePartitions, Source: "waybill.console/test", Index: a, Log: w, Cluster: w.recording,
		LoopbackOperator: true, Now: func() time.Time { return w.now }})
	w.tb.Cleanup(c.Close)
	return c
}

// scaleRoutes are the requests of the screens. {id} is a task whose events are kept.
var scaleRoutes = []struct{ screen, path string }{
	{"now", "/workflows"}, {"now", "/stats"}, {"now", "/stats?from=24h"}, {"now", "/stats?from=168h&by=workflow"}, {"agents", "/stats?by=agent"}, {"agents", "/stats?by=agent&from=168h"}, {"now", "/error-groups?limit=10"}, {"now", "/predictions"},
	{"now", "/tasks?page_size=50&filter=due_within:5m"}, {"now", "/partitions"}, {"now", "/agents"},
	{"tasks", "/tasks?page_size=50"}, {"tasks", "/tasks?page_size=50&filter=state:processed"}, {"tasks", "/tasks?page_size=50&filter=state:error"},
	{"tasks", "/tasks?page_size=50&filter=state:processing+workflow:flow-1"}, {"tasks", "/tasks?page_size=50&filter=label:shop%3D517"},
	{"tasks", "/tasks?page_size=50&filter=agent:agent-1"}, {"tasks", "/tasks?page_size=50&filter=step_in_error:step-1"}, {"tasks", "/tasks?page_size=50&filter=id:order-00001"},
	{"tasks", "/tasks?page_size=50&filter=until:6h+state:processed"},
	{"task", "/tasks/{id}"}, {"task", "/tasks/{id}/timeline"}, {"task", "/tasks/{id}/graph"}, {"task", "/tasks/{id}/why"}, {"task", "/tasks/{id}/chain"},
	{"task", "/tasks/{id}/commands"}, {"task", "/tasks/{id}/states?seq=3"},
	{"held", "/error-groups?limit=200"}, {"held", "/alerts"},
	{"workflow", "/workflows/flow-2/3"}, {"workflow", "/workflows/flow-2/3/steps"}, {"deadletters", "/deadletters"},
}

// BenchmarkScreens asks a console of a system with many tasks for what the screens show:
//
//	go test ./internal/console -run '^$' -bench 'BenchmarkScreens$' -benchtime 1x -v -timeout 3h -ended 1000000 -open 100000
func BenchmarkScreens(b *testing.B) {
	w := newScale(b, *scaleEnded, *scaleOpen, scaleKeep)
	handler := w.console()
	all := float64(*scaleEnded + *scaleOpen)
	b.Logf("%d events of %.0f tasks: %.0f events/s applied and saved by one goroutine, %.1f bytes a task on disk", w.applied, all, float64(w.applied)/w.took.Seconds(), float64(dirBytes(b, w.dir))/all)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.Logf("heap %d MB (with the events of one task in %d), resident %s", m.HeapAlloc>>20, scaleKeep, residentMemory())
	for _, route := range scaleRoutes {
		b.Logf("%-10s %-58s %s", route.screen, route.path, w.measure(handler, route.path))
	}
	b.Logf("resident %s after the requests", residentMemory())
}

// measure sends requests one after another.
func (w *scale) measure(handler http.Handler, path string) string {
	var took []time.Duration
	size := 0
	for range *scaleRequests {
		at := strings.Replace(path, "{id}", url.PathEscape(w.ids[w.rnd.IntN(len(w.ids))]), 1)
		r := httptest.NewRequest(http.MethodGet, api+at, nil)
		r.Host, r.RemoteAddr = "127.0.0.1:8080", "127.0.0.1:1"
		answer := httptest.NewRecorder()
		begun := time.Now()
		handler.ServeHTTP(answer, r)
		took = append(took, time.Since(begun))
		if size = answer.Body.Len(); answer.Code != http.StatusOK {
			w.tb.Fatalf("%s: %d %s", at, answer.Code, answer.Body)
		}
	}
	slices.Sort(took)
	return fmt.Sprintf("p50 %8s  p99 %8s  %7d bytes", took[len(took)/2].Round(10*time.Microsecond), took[len(took)*99/100].Round(10*time.Microsecond), size)
}

// dirBytes returns the size of a store on disk.
func dirBytes(tb testing.TB, dir string) (n int64) {
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// residentMemory returns the resident memory of the process, as Linux says.
func residentMemory() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(status)) {
		if value, is := strings.CutPrefix(line, "VmRSS:"); is {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
