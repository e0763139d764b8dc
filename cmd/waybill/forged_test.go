package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestForgedReplies: a reply without the token of its attempt is dead-lettered and counted, and operators get an alert.
// Only replies of the agent that has the request decide the task.
func TestForgedReplies(t *testing.T) {
	suite.NeedAll(t, "processes that are started and stopped")
	t.Parallel()
	t.Run(kafkatest.EmbeddedKind, func(t *testing.T) {
		u := startUpProcess(t, "--metrics-listen", "127.0.0.1:0")
		u.waybill(t, exitOK, "workflow", "apply", forgedWorkflow(t))
		forge(t, &u.system, u.metricsURL(t))
		u.stop(t)
	})
	t.Run(kafkatest.KafkaKind, func(t *testing.T) {
		s := onBroker(t, kafkatest.Kafka(t), forgedWorkflow(t))
		scheduler := s.start(t, "scheduler", "--metrics-listen", "127.0.0.1:0")
		s.start(t, "supervisor")
		forge(t, s, scheduler.metricsURL(t))
	})
}

func forgedWorkflow(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("testdata/forged.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func forge(t *testing.T, s *system, metrics string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	x := newForgery(ctx, t, s)
	x.produce((&events.Submission{ID: x.task, Workflow: "forged", Input: []byte("{}")}).Record(s.ns, "shop"))

	first := x.asked("depot", "reserve/do/1")
	for _, outcome := range []events.Outcome{events.Completed, events.Rejected} {
		x.forged(strings.TrimSuffix(first, "/"+tokenOf(first)), outcome) // no token
		x.forged(first[:len(first)-1], outcome)                          // wrong token
		x.forged(first+"x", outcome)
	}
	x.reply(first, events.Failed)
	second := x.asked("depot", "reserve/do/2")
	x.forged("f-1/reserve/do/2/"+tokenOf(first), events.Completed) // token of an older attempt
	x.forged("f-1/reserve/do/2/"+tokenOf(first), events.Rejected)
	x.reply(second, events.Completed)
	charge := x.asked("teller", "charge/do/1")
	x.forged("f-1/charge/do/1/"+tokenOf(second), events.Completed) // token of another step
	x.forged("f-1/charge/do/1/"+tokenOf(second), events.Rejected)
	x.reply(charge, events.Rejected)
	undo := x.asked("depot", "reserve/undo/1")
	x.forged("f-1/reserve/undo/1/"+tokenOf(second), events.Completed) // token of the step, for its undo
	x.forged("f-1/reserve/do/2/"+tokenOf(undo), events.Completed)     // token of the undo, for the step
	x.reply(undo, events.Completed)

	x.ends(events.StateUndone, "task.received task.started step.started step.failed step.started step.completed step.started step.rejected"+
		" task.undoing undo.started undo.completed task.undone")
	checkDeadletters(t, awaitDeadletters(ctx, t, s, func(dead []events.Record) bool { return len(dead) >= len(x.want) }), x.want)
	checkCounted(t, metrics, x.want)
	x.alerted()
	s.waybill(t, exitOK, "verify")
}

// forgery is one task. The test is its agents, and also another client that may write to replies.
type forgery struct {
	ctx      context.Context
	t        *testing.T
	s        *system
	task     string
	producer *kafka.Producer
	began    time.Time
	want     map[string]rubbish // the forged records, by origin
}

func newForgery(ctx context.Context, t *testing.T, s *system) *forgery {
	t.Helper()
	p, err := kafka.OpenProducer(s.config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return &forgery{ctx: ctx, t: t, s: s, task: "f-1", producer: p, began: time.Now(), want: map[string]rubbish{}}
}

func tokenOf(request string) string { return request[strings.LastIndexByte(request, '/')+1:] }

func (x *forgery) produce(r events.Record) events.Record {
	return produceOne(x.ctx, x.t, x.producer, r)
}

// asked waits for a request, and returns its ce_request.
func (x *forgery) asked(agent, attempt string) (request string) {
	x.t.Helper()
	x.read(x.s.ns.Requests(agent), func(r *events.Record) bool {
		request, _ = r.Header(events.HeaderRequest)
		return strings.HasPrefix(request, x.task+"/"+attempt+"/")
	})
	return request
}

// read polls a topic until it has a matching record.
func (x *forgery) read(topic string, is func(*events.Record) bool) {
	x.t.Helper()
	r, err := logreader.OpenRestorer(x.s.config(), nil)
	if err != nil {
		x.t.Fatal(err)
	}
	defer r.Close()
	tick := time.NewTicker(tailEvery)
	defer tick.Stop()
	for found := false; !found; <-tick.C {
		if _, err := r.ReadAll(x.ctx, topic, logreader.Range{}, func(rs []events.Record) error {
			for i := range rs {
				found = found || is(&rs[i])
			}
			return nil
		}, nil); err != nil {
			x.t.Fatalf("read %s: %v", topic, err)
		}
	}
}

func (x *forgery) record(request string, o events.Outcome, source string) events.Record {
	return x.produce(events.Record{Topic: x.s.ns.Inbox(events.Replies), Partition: -1, Key: []byte(x.task), Value: []byte(`{"by":"` + source + `"}`), Headers: []events.Header{
		{Key: events.HeaderSource, Value: []byte(source)}, {Key: events.HeaderRequest, Value: []byte(request)}, {Key: events.HeaderOutcome, Value: []byte(o)}}})
}

func (x *forgery) reply(request string, o events.Outcome) { x.record(request, o, "agent") }

// forged writes a reply as a client that doesn't have the attempt's request.
func (x *forgery) forged(request string, o events.Outcome) {
	r := x.record(request, o, "mallory")
	x.want[events.Origin(&r)] = rubbish{r, events.ReasonBadToken}
}

// ends waits until the task has ended, and compares its history with course. No event may come from a forged reply.
func (x *forgery) ends(state events.TaskState, course string) {
	x.t.Helper()
	var got []string
	x.read(x.s.ns.Events(), func(r *events.Record) bool {
		if string(r.Key) != x.task {
			return false
		}
		e, err := events.DecodeEvent(r)
		if err != nil {
			x.t.Fatal(err)
		}
		kind := strings.TrimSuffix(strings.TrimPrefix(e.Fact.Type(), "waybill."), ".v1")
		if e.Seq == 1 {
			got = nil // the topic is read again from its start
		}
		if kind != "step.waiting" { // depends on the supervisor's timing
			got = append(got, kind)
		}
		if strings.Contains(string(r.Value), "mallory") {
			x.t.Errorf("a forged reply is in the log: %s", r.Value)
		}
		return kind == "task."+string(state)
	})
	if strings.Join(got, " ") != course {
		x.t.Errorf("the task went\n%s\nwant\n%s", strings.Join(got, " "), course)
	}
}

// alerted checks that there is an alert, and at most one a minute, since only one worker refuses the replies.
func (x *forgery) alerted() {
	x.t.Helper()
	var alerts []*events.Alert
	x.read(x.s.ns.Alerts(), func(r *events.Record) bool {
		a, err := events.DecodeAlert(r)
		if err != nil {
			x.t.Fatal(err)
		}
		if a.Code == string(events.ReasonBadToken) && !slices.ContainsFunc(alerts, func(b *events.Alert) bool { return a.At.Equal(b.At) }) {
			alerts = append(alerts, a)
		}
		return len(alerts) > 0
	})
	if most := int(time.Since(x.began)/time.Minute) + 1; len(alerts) > most || alerts[0].Task != x.task {
		x.t.Errorf("%d alerts, want at most %d, of %s: %+v", len(alerts), most, x.task, alerts)
	}
}
