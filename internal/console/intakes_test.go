package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/intake"
)

// recordedIntakes keeps intakes in memory, and what was asked.
type recordedIntakes struct {
	known   []intake.IntakeStatus
	asked   []string
	changed time.Time
	listed  atomic.Int32 // how often Kafka would have been asked
}

// newRecordedIntakes returns an intake for each task of a recording whose id can be an intake's name.
func newRecordedIntakes(w *recording) *recordedIntakes {
	s := &recordedIntakes{}
	for id := range w.tasks {
		if events.CheckDefinitionName(id) == nil {
			s.known = append(s.known, intake.IntakeStatus{Name: id, State: intake.StateStopped, Format: intake.JSON, Partitions: []intake.IntakePartition{}})
		}
	}
	return s
}

func (s *recordedIntakes) List(context.Context) ([]intake.IntakeStatus, error) {
	s.listed.Add(1)
	return s.known, nil
}

func (s *recordedIntakes) Changed() time.Time { return s.changed }

func (s *recordedIntakes) MapAgain(ctx context.Context) (func(letter *events.Record) (events.Record, bool, error), error) {
	p, err := intake.Parse("", []byte("intake: shop\ntopic: shop.orders\nsubmit: {workflow: order, id: '${ value.id }'}\n"), events.DefaultNamespace)
	return func(letter *events.Record) (events.Record, bool, error) {
		return intake.Redrive(ctx, map[string]*intake.Program{"shop": p}, nil, letter)
	}, err
}

func (s *recordedIntakes) ApplyIntake(_ context.Context, d *intake.Definition, by events.By) (string, error) {
	lag, at, end := int64(7), "10", "17"
	s.changed = time.Now()
	s.known = append(s.known, intake.IntakeStatus{Name: d.Name, State: intake.StateRunning, Topic: d.Topic, Format: d.Format, To: d.To(), Lag: &lag, Members: 2,
		Partitions: []intake.IntakePartition{{Partition: 0, Position: &at, End: &end, Lag: &lag, Worker: "shop.a.0"}, {Partition: 1}},
		By:         by.Who, Claimed: by.Claimed, Why: by.Why, Definition: d.Canonical()})
	return "created", nil
}

func (s *recordedIntakes) ask(what, name string, by events.By) (string, error) {
	if !slices.ContainsFunc(s.known, func(v intake.IntakeStatus) bool { return v.Name == name }) {
		return "", intake.ErrNotFound
	}
	s.asked = append(s.asked, strings.Join([]string{what, name, by.Who, by.Why}, " "))
	return what, nil
}

func (s *recordedIntakes) Pause(_ context.Context, name string, by events.By) (string, error) {
	return s.ask("paused", name, by)
}

func (s *recordedIntakes) Resume(_ context.Context, name string, by events.By) (string, error) {
	return s.ask("resumed", name, by)
}

func (s *recordedIntakes) Delete(_ context.Context, name string, by events.By) (string, error) {
	return s.ask("deleted", name, by)
}

// TestIntakes: intakes are applied, listed and shown, and commands reach them with who sent them and why. Answers fit the
// document.
func TestIntakes(t *testing.T) {
	w := newRecording(t)
	known := &recordedIntakes{}
	s := w.console(t, nil)
	s.Config.Handler.(*Console).cfg.Intakes = known
	doc := readDocument(t)
	call := func(method, path, route, body string, status int) string {
		t.Helper()
		r := ask(t, s, method, api+path, body)
		if doc.fits(t, method, api+route, r); r.status != status {
			t.Errorf("%s %s: %d %s", method, path, r.status, r.body)
		}
		return r.body
	}
	const definition = `{"definition":"intake: shop\ntopic: shop.orders\nsubmit: {workflow: order, id: '${ value.id }'}\n","reason":"a test"}`
	call(http.MethodPost, "/intakes", "/intakes", definition, http.StatusOK)
	ours := strings.Replace(definition, "shop.orders", "waybill.tasks", 1)
	if body := call(http.MethodPost, "/intakes", "/intakes", ours, http.StatusUnprocessableEntity); !strings.Contains(body, "a topic of the namespace") {
		t.Error(body)
	}
	call(http.MethodPost, "/intakes", "/intakes", `{"definition":"intake: shop\n"}`, http.StatusBadRequest)
	if l := get[IntakeList](t, w, s, api+"/intakes", api+"/intakes"); len(l.Intakes) != 1 || l.Intakes[0].To != "order" || *l.Intakes[0].Lag != 7 || *l.Intakes[0].Partitions[0].Position != "10" || l.Intakes[0].SampledAt == nil {
		t.Errorf("%+v", l)
	}
	known.changed = time.Time{}
	s.Config.Handler.(*Console).sampledIntakes.last.began = time.Now().Add(time.Hour) // what was read stays fresh
	for range 20 {
		call(http.MethodGet, "/intakes", "/intakes", "", http.StatusOK)
	}
	if n := known.listed.Load(); n != 1 {
		t.Errorf("viewers made the console ask Kafka %d times, want once", n)
	}
	call(http.MethodGet, "/intakes/shop", "/intakes/{id}", "", http.StatusOK)
	call(http.MethodGet, "/intakes/none", "/intakes/{id}", "", http.StatusNotFound)
	for _, command := range []string{"pause", "resume", "delete"} {
		path, route := "/intakes/shop/"+command, "/intakes/{id}/"+command
		call(http.MethodPost, path, route, `{"reason":"why not"}`, http.StatusOK)
		call(http.MethodPost, path, route, `{}`, http.StatusBadRequest)
		call(http.MethodPost, strings.Replace(path, "shop", "none", 1), route, `{"reason":"why not"}`, http.StatusNotFound)
	}
	if got := strings.Join(known.asked, ", "); !strings.Contains(got, "paused shop") || !strings.Contains(got, "why not") || len(known.asked) != 3 {
		t.Error(got)
	}
	s.Config.Handler.(*Console).cfg.Intakes = nil
	call(http.MethodGet, "/intakes", "/intakes", "", http.StatusOK)
	call(http.MethodPost, "/intakes", "/intakes", definition, http.StatusServiceUnavailable)
}

// TestDeadlettersOfIntakes: they are listed by intake, and mapped again by a redrive. A submission of the intake that a
// scheduler refused is one of them.
func TestDeadlettersOfIntakes(t *testing.T) {
	w := newRecording(t)
	const topic = "waybill.deadletters"
	w.other[topic] = nil
	w.deadSubmission("a", 0, events.ReasonUnknownWorkflow)
	ref := &events.IntakeRef{Name: "shop", Topic: "shop.orders", TopicID: "abc", Partition: 3, Offset: 17}
	record := events.Record{Topic: ref.Topic, Partition: ref.Partition, Offset: ref.Offset, Value: []byte(`{"id":"o-17"}`), Time: w.now}
	order := (&events.Submission{ID: "o-18", Workflow: "gone", Input: []byte("{}"), Intake: &events.IntakeRef{Name: "shop", Topic: "shop.orders", TopicID: "abc", Partition: 3, Offset: 18}}).Record(events.DefaultNamespace, "test")
	order.Partition = 2
	for i, letter := range []events.Record{
		events.IntakeDeadletter(events.DefaultNamespace, "intake", &record, ref, &events.Unusable{Reason: events.ReasonUnmappable}),
		events.Deadletter(events.DefaultNamespace, "scheduler", &order, &events.Unusable{Reason: events.ReasonUnknownWorkflow}),
	} {
		letter.Partition, letter.Offset, letter.Time = 1, int64(i+1), w.now.Add(-time.Minute)
		w.other[topic] = append(w.other[topic], letter)
	}
	s := w.console(t, nil)
	list := get[consoleapi.DeadletterPage](t, w, s, api+"/deadletters", api+"/deadletters?intake=shop")
	if len(list.Deadletters) != 2 {
		t.Errorf("%+v", list.Deadletters)
	}
	s.Config.Handler.(*Console).cfg.Intakes.(*recordedIntakes).known = []intake.IntakeStatus{{Name: "shop", State: intake.StateStopped, Partitions: []intake.IntakePartition{}}, {Name: "other", State: intake.StateStopped, Partitions: []intake.IntakePartition{}}}
	intakes := get[IntakeList](t, w, s, api+"/intakes", api+"/intakes").Intakes
	if len(intakes) != 2 || intakes[0].Deadletters.Count != 2 || intakes[1].Deadletters.Count != 0 {
		t.Errorf("%+v", intakes)
	}
	before := w.writes()
	r := ask(t, s, http.MethodPost, api+"/deadletters/redrive", `{"intake":"shop"}`)
	if n := w.writes() - before; r.status != http.StatusOK || n != 2 || !strings.Contains(r.body, `"task":"o-17"`) || !strings.Contains(r.body, `"task":"o-18"`) {
		t.Errorf("%d %s; %d written", r.status, r.body, n)
	}
	for _, r := range w.written[len(w.written)-2:] {
		_, in, err := events.DecodeInput(events.Tasks, &r)
		if order, ok := in.(*events.Submission); err != nil || !ok || order.Intake == nil || order.Intake.Name != "shop" {
			t.Errorf("written: %+v, %v", in, err)
		}
	}
}
