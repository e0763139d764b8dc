package console

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/golden"
	"github.com/waybill-run/waybill/internal/index"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/workflow"
)

// recording is a recorded system. Each console that serves it has its own store.
type recording struct {
	partitions int32
	records    map[int32][]events.Record // events
	other      map[string][]events.Record
	tasks      map[string]*events.Task
	now        time.Time
	noAgents   bool
	waiting    map[string]*Waiting // submissions that no scheduler has consumed
	readEvents atomic.Int64        // by offset
	looking    func()              // called by each lookup of a submission; nil: nothing
	cluster    string
	failed     func(error)             // receives the errors of a console; nil: discarded
	more       int64                   // records of each partition that no console has read yet
	moreIn     *int32                  // the only partition that has them; nil: all
	restoring  map[int32]int64         // ends of partitions that are still restored
	behind     map[int32]time.Duration // for how long partitions are behind
	leaderless []int32                 // partitions of all topics without a leader
	unsettled  map[int32]int           // by partition: how many of the last records are of an open transaction
	within     timeouts
	stuck      func(context.Context) error // blocks reads of a task's events; nil: none
	corruption Corruption                  // the corruption in partition corruptIn
	corruptIn  int32
	endsAsked  func(context.Context)    // receives the context of each question about the ends; nil: nothing
	groups     func(context.Context)    // blocks questions about agents; nil: none
	topic      func()                   // blocks reads of a topic; nil: none
	found      func(*projections.Found) // changes what the index finds of a task; nil: nothing

	watches index.Watches
	asked   atomic.Int64 // how often the groups were asked
	mu      sync.Mutex
	applied []Workflow // not read yet

	definitions map[string]*workflow.Definition // by name/version
	deleted     int                             // the version that was deleted; 0: none
	read        []Workflow
	unread      error // why the definitions can't be read
	written     []events.Record
	answer      func(*events.Control) (*events.Answer, error)
	streams     []chan []events.Record // what each stream receives after the recorded events
}

// recordedPartitions is the number of partitions of the recorded system.
const recordedPartitions = 4

// recordedLog is the recorded log. Nothing changes its records.
var recordedLog = sync.OnceValues(func() ([]events.Record, error) {
	f, err := os.Open("../golden/testdata/1-7a71873/log.jsonl.gz")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	in, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return golden.ReadLog(in)
})

func newRecording(t testing.TB) *recording {
	t.Helper()
	all, err := recordedLog()
	if err != nil {
		t.Fatal(err)
	}
	w := &recording{cluster: "c", partitions: recordedPartitions, records: map[int32][]events.Record{}, other: map[string][]events.Record{}, tasks: map[string]*events.Task{},
		within: defaultTimeouts, unsettled: map[int32]int{}}
	ns := events.Namespace(events.DefaultNamespace)
	for _, r := range all {
		if r.Topic != ns.Events() {
			w.other[r.Topic] = append(w.other[r.Topic], r)
			continue
		}
		w.records[r.Partition] = append(w.records[r.Partition], r)
		if r.Time.After(w.now) {
			w.now = r.Time
		}
		if len(r.Key) > 0 {
			w.fold(t, &r)
		}
	}
	if len(w.tasks) < 20 {
		t.Fatalf("%d tasks: too few to show anything", len(w.tasks))
	}
	return w
}

func (w *recording) fold(t testing.TB, r *events.Record) {
	t.Helper()
	e, err := events.DecodeEvent(r)
	if err != nil {
		t.Fatal(err)
	}
	task, err := events.Evolve(w.tasks[e.Task], e, events.Hash(e.Fact.Type(), r.Value))
	if err != nil {
		t.Fatal(err)
	}
	w.tasks[e.Task] = task
}

// some returns a task in a state.
func (w *recording) some(t testing.TB, state events.TaskState) *events.Task {
	t.Helper()
	for _, id := range slices.Sorted(maps.Keys(w.tasks)) {
		if w.tasks[id].State == state {
			return w.tasks[id]
		}
	}
	t.Fatalf("no task is %s", state)
	return nil
}

// console starts a console that has read some partitions, all if none are named.
func (w *recording) console(t testing.TB, tokens *Tokens, read ...int32) *httptest.Server {
	t.Helper()
	if len(read) == 0 {
		for p := range w.partitions {
			read = append(read, p)
		}
	}
	id := projections.Identity{ClusterID: w.cluster, Namespace: events.DefaultNamespace, Partitions: w.partitions, View: projections.ViewTimelines}
	store, err := projections.Open(t.TempDir(), id, projections.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := &fakeIndex{w: w, Store: store, next: map[int32]int64{}}
	for _, p := range read {
		v, err := store.Timelines(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range w.records[p] {
			if err := v.Apply(&w.records[p][i]); err != nil {
				t.Fatal(err)
			}
		}
		v.Save()
		a.next[p] = v.Next()
		v.Close()
	}
	server := httptest.NewUnstartedServer(nil)
	c := New(Config{ClusterID: w.cluster, Namespace: events.DefaultNamespace, Partitions: w.partitions, Source: "waybill.console/test",
		Index: a, Log: w, Cluster: w, Batches: newRecordedBatches(w), Schedules: newRecordedSchedules(t, w), Intakes: newRecordedIntakes(w), Tokens: tokens, LoopbackOperator: true, Now: func() time.Time { return w.now },
		Failed: func(_ *http.Request, err error) {
			if w.failed != nil {
				w.failed(err)
			}
		}})
	c.timeouts = w.within
	server.Config = c.server()
	server.Start()
	t.Cleanup(func() {
		c.Close()
		server.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// fakeIndex has read all recorded events of some partitions.
type fakeIndex struct {
	*projections.Store
	w    *recording
	next map[int32]int64
}

func (a *fakeIndex) Flush(context.Context, ...int32) error { return nil }
func (a *fakeIndex) Subscribe() (<-chan struct{}, func())  { return nil, func() {} }
func (a *fakeIndex) Watch() *index.Watch                   { return a.w.watches.Watch() }
func (a *fakeIndex) Progress() map[int32]index.Progress {
	progress := map[int32]index.Progress{}
	for p, next := range a.next {
		progress[p] = index.Progress{Next: next, End: next, Silent: slices.Contains(a.w.leaderless, p)}
		if end := a.w.restoring[p]; end > 0 {
			progress[p] = index.Progress{Next: next, End: end, Behind: true, Restoring: true}
		}
		if since := a.w.behind[p]; since > 0 {
			progress[p] = index.Progress{Next: next, End: 2 * next, Behind: true, BehindSince: time.Now().Add(-since)}
		}
	}
	return progress
}

func (a *fakeIndex) Find(p int32, task string) (f projections.Found, begun bool) {
	var err error
	if f.Summary, _, err = a.Store.Summary(p, task); err != nil {
		panic(err)
	}
	counts, _, err := a.Counts(p)
	if err != nil {
		panic(err)
	}
	f.Owner = counts.Owner
	for i := range a.w.records[p] {
		if r := &a.w.records[p][i]; string(r.Key) == task && f.NoEvent == nil {
			if _, _, err := events.EventName(r); err != nil {
				f.NoEvent = &projections.Stop{Task: task, Offset: r.Offset}
			}
		}
	}
	if f.Places, f.Next, err = a.Store.Places(p, task); err != nil {
		panic(err)
	}
	if a.w.found != nil {
		a.w.found(&f)
	}
	return f, contains(a.next, p)
}

func (a *fakeIndex) AwaitOffset(ctx context.Context, p int32, offset int64) error {
	if a.next[p] >= offset {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// The recording implements the log and the cluster too.

func (w *recording) ReadAt(ctx context.Context, p int32, offsets []int64) (found []events.Record, corruption []Corruption, err error) {
	if w.stuck != nil {
		if err := w.stuck(ctx); err != nil {
			return nil, nil, err
		}
	}
	is := func(r *events.Record) bool {
		return p == w.corruptIn && r.Offset >= w.corruption.From && r.Offset < w.corruption.Next
	}
	wanted := slices.Sorted(slices.Values(offsets))
	for _, r := range w.records[p] {
		if _, asked := slices.BinarySearch(wanted, r.Offset); asked && !is(&r) {
			found = append(found, r)
		} else if asked && corruption == nil {
			corruption = append(corruption, w.corruption)
		}
	}
	w.readEvents.Add(int64(len(found)))
	return found, corruption, nil
}

func (w *recording) Ends(ctx context.Context) (map[int32]int64, error) {
	if w.endsAsked != nil {
		w.endsAsked(ctx)
	}
	ends := map[int32]int64{}
	for p := range w.partitions {
		if slices.Contains(w.leaderless, p) {
			continue
		}
		ends[p] = 0
		if rs := w.records[p]; len(rs) > 0 {
			ends[p] = rs[len(rs)-1].Offset + 1
			if w.moreIn == nil || *w.moreIn == p {
				ends[p] += w.more
			}
		}
	}
	return ends, nil
}

func (w *recording) Settled(ctx context.Context) (map[int32]int64, error) {
	ends, err := w.Ends(ctx)
	for p, n := range w.unsettled {
		ends[p] = w.records[p][len(w.records[p])-n].Offset
	}
	return ends, err
}

func (w *recording) Follow(from map[int32]int64) (Stream, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &fakeStream{w: w, from: maps.Clone(from), more: make(chan []events.Record, 1)}
	w.streams = append(w.streams, s.more)
	return s, nil
}

// fakeStream returns the recorded events, then those that the test sends.
type fakeStream struct {
	w    *recording
	from map[int32]int64
	more chan []events.Record
	done bool
}

func (s *fakeStream) Poll(ctx context.Context) (rs []events.Record, err error) {
	if !s.done {
		s.done = true
		for p, from := range s.from {
			for _, r := range s.w.records[p] {
				if r.Offset >= from {
					rs = append(rs, r)
				}
			}
		}
		return rs, nil
	}
	select {
	case rs = <-s.more:
		return rs, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *fakeStream) Close() {}

// forget detaches the open streams: they receive no more events.
func (w *recording) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams = nil
}

// offsetText returns an offset as JSON has it.
func offsetText(offset int64) string { return strconv.FormatInt(offset, 10) }

// comes sends records to every stream.
func (w *recording) comes(rs ...events.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, to := range w.streams {
		to <- rs
	}
}

func (w *recording) Alerts(_ context.Context, from TopicPosition, fn func(*events.Record)) (TopicPosition, error) {
	return w.readTopic("waybill.alerts", from, fn)
}

func (w *recording) Waiting(_ context.Context, id string) (*Waiting, error) {
	if w.looking != nil {
		w.looking()
	}
	return w.waiting[id], nil
}

func (w *recording) Deadletters(_ context.Context, from TopicPosition, fn func(*events.Record)) (TopicPosition, error) {
	return w.readTopic("waybill.deadletters", from, fn)
}

func (w *recording) readTopic(topic string, from TopicPosition, fn func(*events.Record)) (TopicPosition, error) {
	if w.topic != nil {
		w.topic()
	}
	reached := TopicPosition{Since: from.Since, Offsets: map[int32]int64{}, Leaderless: w.leaderless}
	maps.Copy(reached.Offsets, from.Offsets)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.other[topic] {
		r := &w.other[topic][i]
		if next, has := from.Offsets[r.Partition]; has && r.Offset < next || !has && r.Time.Before(from.Since) {
			continue
		}
		reached.Offsets[r.Partition] = max(reached.Offsets[r.Partition], r.Offset+1)
		fn(r)
	}
	return reached, nil
}

func (w *recording) Submit(ctx context.Context, r events.Record) error { return w.Write(ctx, r) }

func (w *recording) Write(_ context.Context, rs ...events.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written = append(w.written, rs...)
	return nil
}

func (w *recording) Control(ctx context.Context, x *events.Control, r events.Record) (*events.Answer, error) {
	w.mu.Lock()
	w.written = append(w.written, r)
	answer := w.answer
	w.mu.Unlock()
	if answer == nil { // no scheduler runs
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return answer(x)
}

func (w *recording) writes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.written)
}

func (w *recording) Agents(ctx context.Context) ([]consoleapi.Agent, error) {
	w.asked.Add(1)
	if w.groups != nil {
		w.groups(ctx)
	}
	return []consoleapi.Agent{{Agent: "payments", Partitions: 4, Members: 1, Circuit: "closed"}}, nil
}

func (w *recording) Agent(context.Context, string) (replay.AgentState, error) {
	if w.noAgents {
		return replay.AgentState{}, ErrUnknownAgent
	}
	return replay.AgentState{Members: 1}, nil
}

func (w *recording) Scheduling(context.Context) (map[int32]Scheduling, error) {
	w.asked.Add(1)
	return map[int32]Scheduling{0: {Lag: 7, Scheduler: "s1.0", Restored: 0.25}}, nil
}

func (w *recording) Workflows() []Workflow {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Workflow{
		{Name: "order", Version: 1, Steps: []string{"reserve", "charge", "ship"}, Agents: []string{"inventory", "payments", "shipping"}},
		{Name: "parcel", Version: 1, Steps: []string{}, Agents: []string{}}}, w.read...)
}

func (w *recording) ReadWorkflows(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read, w.applied = append(w.read, w.applied...), nil
	return w.unread
}

// ApplyDefinition keeps a definition, as the registry does, and a record of who applied it.
func (w *recording) ApplyDefinition(_ context.Context, d *workflow.Definition, by events.By) (existed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if had := w.definitions[d.Key()]; had != nil {
		if string(had.JSON()) != string(d.JSON()) {
			return false, fmt.Errorf("%w: use a new version (version: %d)", ErrVersionExists, d.Version+1)
		}
		return true, nil
	}
	if w.definitions == nil {
		w.definitions = map[string]*workflow.Definition{}
	}
	w.definitions[d.Key()] = d
	w.applied = append(w.applied, Workflow{Name: d.Name, Version: d.Version, Steps: []string{}, Agents: d.Agents()})
	w.written = append(w.written, events.Record{Key: []byte(d.Key()), Value: []byte(by.Who + "|" + by.Claimed + "|" + by.Why)})
	return false, nil
}

// server is a listening console.
type server = *httptest.Server

// reply is a response.
type reply struct {
	status int
	header http.Header
	body   string
}

// ask sends a request, with headers as "Name: value".
func ask(t testing.TB, s *httptest.Server, method, path, body string, headers ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		} else {
			if name == "Content-Type" {
				r.Header.Del(name)
			}
			r.Header.Add(name, value)
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(raw)}
}

// askRaw sends bytes that no HTTP client would send, and returns the response.
func askRaw(t testing.TB, s *httptest.Server, text string) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(suite.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	raw, _ := io.ReadAll(conn) // until the server closes the connection
	return string(raw)
}
