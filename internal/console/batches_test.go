package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/projections"
)

// recordedBatches keeps the batches of a recording. Nobody sends their commands.
type recordedBatches struct {
	fold    *batch.Fold
	records batch.Records
	apply   func(...events.Record)
	err     error

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

func newRecordedBatches(w *recording) *recordedBatches {
	b := &recordedBatches{fold: batch.NewFold(), records: batch.Records{Namespace: events.DefaultNamespace, Source: "test"}, changed: make(chan struct{})}
	b.apply = func(rs ...events.Record) {
		for i := range rs {
			rs[i].Time = w.now
			b.fold.Apply(&rs[i])
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		close(b.changed)
		b.changed = make(chan struct{})
	}
	return b
}

func (b *recordedBatches) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *recordedBatches) List() (list []*batch.View, err error) {
	for _, k := range b.fold.All() {
		list = append([]*batch.View{k.View()}, list...)
	}
	return list, b.err
}

func (b *recordedBatches) Find(id string) (*batch.View, error) {
	if k := b.fold.Find(id); k != nil && b.err == nil {
		return k.View(), nil
	}
	return nil, b.err
}

func (b *recordedBatches) Results(id string, from int, status batch.Status, limit int) (list []batch.Result, next int, err error) {
	list, next = b.fold.Find(id).Page(from, status, limit)
	return list, next, nil
}

func (b *recordedBatches) Create(_ context.Context, o batch.Order, targets []batch.Target) (*batch.View, bool, error) {
	o.Draft = o.ID
	pieces, order, err := b.records.Ordered(o, targets)
	b.apply(append(pieces, order)...)
	return b.fold.Find(o.ID).View(), true, err
}

func (b *recordedBatches) Stop(_ context.Context, id string, by batch.StopRequest) (*batch.View, error) {
	r, err := b.records.StopRequested(id, by)
	b.apply(r)
	return b.fold.Find(id).View(), err
}

// order orders a batch.
func order(t *testing.T, s server, body string, status int) consoleapi.BatchAnswer {
	t.Helper()
	r := ask(t, s, http.MethodPost, api+"/batches", body)
	readDocument(t).fits(t, http.MethodPost, api+"/batches", r)
	var a consoleapi.BatchAnswer
	if r.status != status {
		t.Fatalf("%s: %d %s", body, r.status, r.body)
	}
	if status < http.StatusBadRequest {
		if err := json.Unmarshal([]byte(r.body), &a); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func TestBatches(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	held, processed := 0, ""
	for id, task := range w.tasks {
		switch task.State {
		case events.StateError:
			held++
		case events.StateProcessed:
			processed = id
		}
	}
	preview := order(t, s, `{"command":"resubmit","filter":"workflow:order","preview":true}`, http.StatusOK)
	if all := order(t, s, `{"command":"resubmit","filter":"state:error","preview":true}`, http.StatusOK); all.Selected != held || preview.Batch != nil || len(all.First) == 0 || all.Left != 0 {
		t.Errorf("%d held tasks: %+v, %+v", held, preview, all)
	}
	named := fmt.Sprintf(`{"id":"b-1","command":"undo","tasks":[%q,"nobody",%q],"reason":"a test"}`, processed, w.some(t, events.StateError).ID)
	a := order(t, s, named, http.StatusCreated)
	if a.Selected != 1 || a.Left != 2 || len(a.Refused) != 2 || a.Batch == nil || a.Batch.Rate != batchRate || a.Batch.Canary != batchCanary || a.Batch.Reason != "a test" || a.Batch.Claimed != localName {
		t.Errorf("%+v, %+v", a, a.Batch)
	}
	if again := order(t, s, named, http.StatusOK); again.Batch.ID != "b-1" || again.Batch.Tasks != 1 {
		t.Errorf("repeated: %+v", again)
	}
	order(t, s, strings.Replace(named, "undo", "resubmit", 1), http.StatusConflict)

	stopped := ask(t, s, http.MethodPost, api+"/batches/b-1/stop", `{"reason":"enough"}`)
	var b consoleapi.Batch
	if err := json.Unmarshal([]byte(stopped.body), &b); err != nil || b.State != consoleapi.BatchStopping || b.Counts[batch.Waiting] != 1 {
		t.Errorf("%s", stopped.body)
	}
	page := get[consoleapi.BatchResults](t, w, s, api+"/batches/{id}/results", api+"/batches/b-1/results?page_size=1")
	if len(page.Results) != 1 || page.Results[0].RequestID != batch.RequestID("b-1", page.Results[0].Task) || page.NextPageToken != "" {
		t.Errorf("%+v", page)
	}
	if l := get[consoleapi.BatchList](t, w, s, api+"/batches", api+"/batches"); len(l.Batches) != 1 || l.Left != 0 {
		t.Errorf("%+v", l)
	}
	if w.writes() > 0 {
		t.Errorf("the console itself wrote %d records", w.writes())
	}
}

func TestBatchesRefuse(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	for body, status := range map[string]int{
		`{"command":"release","filter":"state:held","reason":"x"}`:                                                         http.StatusBadRequest,
		`{"command":"resubmit","reason":"x"}`:                                                                              http.StatusBadRequest,
		`{"command":"resubmit","filter":"state:held","tasks":["a"],"reason":"x"}`:                                          http.StatusBadRequest,
		`{"command":"resubmit","filter":"state:held"}`:                                                                     http.StatusBadRequest,
		`{"command":"resubmit","filter":"state:nowhere","reason":"x"}`:                                                     http.StatusBadRequest,
		`{"command":"resubmit","filter":"state:held","reason":"x","rate":-1}`:                                              http.StatusBadRequest,
		`{"command":"resubmit","filter":"state:held","reason":"x","canary":-1}`:                                            http.StatusBadRequest,
		`{"command":"resubmit","filter":"state:held","reason":"x","canary_within":"forever"}`:                              http.StatusBadRequest,
		`{"command":"resubmit","filter":"state:held","reason":"x","keep":true}`:                                            http.StatusBadRequest,
		`{"command":"resubmit","filter":"state:held","reason":"x","id":"a\u0000b"}`:                                        http.StatusBadRequest,
		`{"command":"resubmit","filter":"workflow:none","reason":"x"}`:                                                     http.StatusUnprocessableEntity,
		`{"command":"resubmit","filter":"state:held","reason":"x","rate":0.0000001}`:                                       http.StatusUnprocessableEntity,
		fmt.Sprintf(`{"command":"resubmit","filter":"state:held","reason":%q}`, strings.Repeat("x", events.MaxWhyBytes+1)): http.StatusUnprocessableEntity,
	} {
		order(t, s, body, status)
	}
	tokens := w.console(t, someTokens(t))
	r := ask(t, tokens, http.MethodPost, api+"/batches", `{"command":"undo","processed":true,"filter":"state:processed","preview":true}`, bearer+operatorToken)
	if r.status != http.StatusForbidden {
		t.Errorf("an operator undoes processed tasks: %d %s", r.status, r.body)
	}
	for _, path := range []string{"/batches/none", "/batches/none/results"} {
		if r := ask(t, s, http.MethodGet, api+path, ""); r.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
}

// A hostile id, filter, reason or task of a batch is data, or refused.
func TestHostileBatches(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	for _, text := range hostile {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{`{"id":%s,"command":"resubmit","filter":"state:held","reason":"x"}`, `{"command":"resubmit","filter":%s,"reason":"x"}`,
			`{"command":"resubmit","filter":"state:held","reason":%s}`, `{"command":"resubmit","tasks":[%s],"reason":"x"}`, `{"command":%s,"filter":"state:held","reason":"x"}`} {
			r := ask(t, s, http.MethodPost, api+"/batches", fmt.Sprintf(body, quoted))
			readDocument(t).fits(t, http.MethodPost, api+"/batches", r)
			if r.status >= http.StatusInternalServerError || strings.ContainsAny(r.body, "\x00\r") || !strings.Contains(r.header.Get("Content-Type"), "json") {
				t.Errorf("%s: %d %v %s", fmt.Sprintf(body, quoted), r.status, r.header, r.body)
			}
		}
	}
	for _, b := range get[consoleapi.BatchList](t, w, s, api+"/batches", api+"/batches").Batches {
		if strings.ContainsAny(b.ID, "\x00\r\n") || !slices.Contains([]string{consoleapi.BatchRunning}, b.State) {
			t.Errorf("%+v", b)
		}
	}
}

// TestNamedBatchOfAnIncompletePartition checks that a batch that names tasks doesn't leave out a task because the console
// hasn't read its partition to the end: the order gets 503, and no batch is created. Other partitions don't matter.
func TestNamedBatchOfAnIncompletePartition(t *testing.T) {
	w := newRecording(t)
	held := w.some(t, events.StateError).ID
	p := events.Partition([]byte(held), w.partitions)
	other := ""
	for id, task := range w.tasks {
		if task.State == events.StateError && events.Partition([]byte(id), w.partitions) != p {
			other = id
		}
	}
	w.found = func(f *projections.Found) { // its last events aren't read
		if f.Summary != nil && f.Summary.ID == held {
			*f = projections.Found{Next: f.Next}
		}
	}
	others := slices.DeleteFunc([]int32{0, 1, 2, 3}, func(q int32) bool { return q == p })
	for name, set := range map[string]struct {
		why  string
		read []int32
		set  func(*recording)
	}{
		"restoring":   {consoleapi.Restoring, nil, func(w *recording) { w.restoring = map[int32]int64{p: 1 << 30} }},
		"not started": {consoleapi.Restoring, others, func(*recording) {}},
		"no leader":   {consoleapi.NoLeader, nil, func(w *recording) { w.leaderless = []int32{p} }},
		"behind":      {consoleapi.Behind, nil, func(w *recording) { w.more, w.moreIn = 5, &p }},
	} {
		t.Run(name, func(t *testing.T) {
			if set.why == consoleapi.Behind {
				suite.NeedAll(t, "seconds of waiting on the machine's own clock")
			}
			w.restoring, w.leaderless, w.more = nil, nil, 0
			set.set(w)
			s := w.console(t, nil, set.read...)
			for _, preview := range []bool{false, true} {
				r := ask(t, s, http.MethodPost, api+"/batches", fmt.Sprintf(`{"id":"b-1","command":"resubmit","tasks":[%q,%q],"reason":"x","preview":%v}`, other, held, preview))
				got := problem(t, r, http.StatusServiceUnavailable)
				if got.Type != consoleapi.ProblemTypes+"incomplete" || len(got.Incomplete) != 1 || got.Incomplete[0].Partition != p || got.Incomplete[0].Why != set.why {
					t.Errorf("preview %v: %s", preview, r.body)
				}
			}
			if a := order(t, s, fmt.Sprintf(`{"id":"b-1","command":"resubmit","tasks":[%q],"reason":"x"}`, other), http.StatusCreated); a.Selected != 1 {
				t.Errorf("a task of another partition: %+v", a)
			}
		})
	}
}
