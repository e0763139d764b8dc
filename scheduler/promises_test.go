package scheduler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/workflow"
)

// maxRecordBytes is the largest record that Kafka takes by default.
const maxRecordBytes = 1_000_012

// world is one task with everybody around it. What it knows of the task it has
// from the records that decisions wrote, and it holds each decision against
// that.
type world struct {
	t          *rapid.T
	definition *workflow.Definition
	catalog    *Compiled
	gone       bool             // nobody finds the definition
	requests   map[string]int32 // of the agents that are there
	bodyBytes  int              // of what agents say; 0: little
	start, now time.Time
	offset     int64
	submission *events.Submission

	task     *events.Task          // as Decide left it
	fold     *events.Task          // of the records
	part     events.PartitionState // of the records
	timers   events.Timers         // of the records
	log      *verify.Log           // of the records
	records  []events.Record       // of events
	sent     []*events.Request
	asked    []*events.Recovery
	controls []*events.Control
	accepted []events.Accepted
	effects  map[string]*effect
	runs     map[events.Slot]*ran
}

// effect is what is known of a step's effect on the world.
type effect struct{ completed, unknown bool }

// ran is what was seen of the attempts of a run.
type ran struct {
	attempts  int // since the last fresh start
	key       string
	rejected  bool  // since the key was seen
	renewable bool  // ... and resubmitted after that
	last      int   // attempt of which a request was sent,
	partition int32 // to which partition,
	of        int32 // of how many
}

func newWorld(t *rapid.T) *world {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := &world{t: t, definition: drawDefinition(t), catalog: &Compiled{}, start: start, now: start, log: verify.NewLog(),
		requests: map[string]int32{}, effects: map[string]*effect{}, runs: map[events.Slot]*ran{}}
	for _, a := range agents {
		w.requests[a] = rapid.Int32Range(1, 7).Draw(t, "partitions")
	}
	if rarely(t, "large bodies") {
		w.bodyBytes = rapid.SampledFrom([]int{90 << 10, 200 << 10, 300 << 10}).Draw(t, "bytes")
	}
	w.catalog.Rejected = func(key string, err error) { t.Fatalf("%s: %v", key, err) }
	w.catalog.Apply(&events.Record{Key: []byte(w.definition.Key()), Value: w.definition.JSON()})

	n := strings.Repeat("x", rapid.SampledFrom([]int{0, 0, 0, w.bodyBytes}).Draw(t, "input bytes"))
	w.submission = &events.Submission{ID: "t", Workflow: "w", Labels: map[string]string{"b": "1", "a": "2"},
		Input: json.RawMessage(fmt.Sprintf(`{"n": %d, "text": %q}`, rapid.IntRange(0, 5).Draw(t, "n"), n))}
	if rapid.Bool().Draw(t, "reply_to") {
		w.submission.ReplyTo = "app.replies"
	}
	if rarely(t, "own complete_by") {
		w.submission.CompleteBy = start.Add(drawDuration(t, "complete_by", time.Second, time.Minute) - 2*time.Second)
	}
	w.claim()
	return w
}

func (w *world) claim() {
	e := &events.Event{Seq: 1, Epoch: 1, At: w.now, Fact: &events.PartitionClaimed{Owner: "test"}}
	if err := w.part.Evolve(e); err != nil {
		w.t.Fatal(err)
	}
	r := e.Record(events.DefaultNamespace, "test", 0, e.Value())
	w.log.Add(&r)
}

// clock is what a lane would decide by: never before the partition's last.
func (w *world) clock() time.Time {
	if w.now.Before(w.part.At) {
		return w.part.At
	}
	return events.Millis(w.now)
}

// Program implements Definitions.
func (w *world) Program(name string, version int) (*workflow.Program, bool) {
	if w.gone {
		return nil, false
	}
	return w.catalog.Program(name, version)
}

// decide has one input decided, checks the decision, and takes it over.
func (w *world) decide(inbox events.Inbox, in events.Input) Decision {
	w.offset++
	cause := events.Cause{Inbox: inbox, Offset: w.offset}
	env := &Env{Now: w.clock(), Namespace: events.DefaultNamespace, Source: "test", Epoch: 1, Definitions: w, Requests: w.requests}
	before := w.task.Clone()
	d := Decide(w.task.Clone(), in, cause, env)
	if d.NeedDefinitions {
		if d.Events != nil || d.Records != nil || d.Task != nil || d.Ignored != "" || d.Unusable != nil {
			w.t.Fatalf("a decision that needs definitions decides something: %+v", d)
		}
		env.DefinitionsRead = true
		d = Decide(w.task.Clone(), in, cause, env)
	}
	if again := Decide(before, in, cause, env); !slices.EqualFunc(again.Records, d.Records, sameRecord) {
		w.t.Fatalf("the same input, decided twice:\n%v\n%v", d.Records, again.Records)
	}
	if encode(w.task) != encode(w.fold) {
		w.t.Fatalf("Decide changed the state that it was given a clone of")
	}
	if r, ok := in.(*events.Recovery); ok {
		w.checkRecovery(r, &d)
	}
	w.checkRecords(&d)
	w.task = d.Task
	w.checkState()
	return d
}

// checkRecovery: one that leads to something names a timer that is armed, and
// due but for the tolerance of clocks.
func (w *world) checkRecovery(r *events.Recovery, d *Decision) {
	if len(d.Events) == 0 {
		return
	}
	for _, a := range w.timers.Armed {
		if a.Timer.Seq == r.Timer && a.Slot.Step == r.Step && (r.Step == "" || a.Slot.Kind == r.Kind) {
			if early := a.Timer.Due.Sub(w.clock()); early > clockTolerance {
				w.t.Fatalf("%+v was accepted %s early", *r, early)
			}
			if d.Events[0].At.Before(a.Timer.Due) {
				w.t.Fatalf("%+v was accepted at %s, before the timer's due, %s", *r, d.Events[0].At, a.Timer.Due)
			}
			w.checkAction(r, &a, d.Events[0].At)
			return
		}
	}
	w.t.Fatalf("%+v was accepted; armed are %+v", *r, w.timers.Armed)
}

// checkAction: it is the one that the policy calls for; or a wait that is over
// by now; or it only ends an attempt of a task that doesn't go on.
func (w *world) checkAction(r *events.Recovery, a *events.Armed, now time.Time) {
	if a.Policy.Timer == events.TimerAttempt && (w.task.State == events.StateError || w.task.State == events.StateUndoing && r.Kind == events.Do) {
		return
	}
	if !a.Policy.CompleteBy.IsZero() && !a.Policy.CompleteBy.Equal(w.task.CompleteBy) {
		return // resubmitted since: another policy
	}
	want := a.Policy.Next("t", r.Step, r.Kind, a.Attempt, a.Timer.Due, now).Action
	if r.Action != want && !(want == events.ActionRetry && r.Action == events.ActionWait) {
		w.t.Fatalf("%+v was accepted; the policy calls for %s", *r, want)
	}
}

func sameRecord(a, b events.Record) bool {
	return a.Topic == b.Topic && a.Partition == b.Partition && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y events.Header) bool { return x.Key == y.Key && bytes.Equal(x.Value, y.Value) })
}

func encode(t *events.Task) string {
	if t == nil {
		return ""
	}
	return string(t.Encode())
}

// submit checks what a submission may lead to.
func (w *world) submit(s *events.Submission) {
	was := w.task
	d := w.decide(events.Tasks, s)
	switch {
	case was == nil && w.gone:
		if d.Unusable == nil || d.Unusable.Reason != events.ReasonUnknownWorkflow {
			w.t.Fatalf("submitted to an unknown workflow: %+v", d)
		}
	case was == nil:
		if len(d.Events) < 2 {
			w.t.Fatalf("a submission led to %+v", d)
		}
	case s.Digest() == was.Digest:
		if d.Ignored != IgnoredDuplicate || len(d.Events) > 0 {
			w.t.Fatalf("the same submission again led to %+v", d)
		}
	default:
		if d.Unusable == nil || d.Unusable.Reason != events.ReasonIDConflict || len(d.Events) > 0 {
			w.t.Fatalf("another body under the same id led to %+v", d)
		}
	}
}

// control: each is answered once, with the seq of its first event or a reason.
func (w *world) control(x *events.Control) Decision {
	others := w.othersInError(x.Step)
	d := w.decide(events.Controls, x)
	var answers []*events.Answer
	for i := range d.Records {
		if d.Records[i].Topic == events.Namespace(events.DefaultNamespace).Answers() {
			a, err := events.DecodeAnswer(&d.Records[i])
			if err != nil {
				w.t.Fatal(err)
			}
			answers = append(answers, a)
		}
	}
	if len(answers) != 1 || answers[0].Control != x.ID {
		w.t.Fatalf("control %s got the answers %+v", x.ID, answers)
	}
	a := answers[0]
	again := slices.IndexFunc(w.accepted, func(a events.Accepted) bool { return a.RequestID == x.RequestID })
	switch {
	case again >= 0:
		if !a.Accepted || d.Ignored != IgnoredDuplicate || a.Seq != w.accepted[again].Seq || len(d.Events) > 0 {
			w.t.Fatalf("control %s, accepted as %d, again: %+v", x.ID, w.accepted[again].Seq, a)
		}
	case a.Accepted:
		if len(d.Events) == 0 || a.Seq != d.Events[0].Seq {
			w.t.Fatalf("control %s was accepted as %d; its events: %v", x.ID, a.Seq, d.Events)
		}
		if x.Command == events.Release && others && len(d.Events) != 1 {
			w.t.Fatalf("step %q was released, another is in error, and the task goes on: %v", x.Step, d.Events)
		}
		w.accepted = append(w.accepted, events.Accepted{RequestID: x.RequestID, Seq: a.Seq})
		w.accepted = w.accepted[max(0, len(w.accepted)-events.MaxAcceptedControls):]
	case len(d.Events) > 0 || a.Reason == "":
		w.t.Fatalf("control %s was refused for %q; its events: %v", x.ID, a.Reason, d.Events)
	}
	return d
}

// othersInError reports whether more than one step holds the task.
func (w *world) othersInError(but string) bool {
	if w.task == nil {
		return false
	}
	for i := range w.task.Steps {
		s := &w.task.Steps[i]
		held := w.task.Ending == "" && s.State == events.StepError || s.Undo != nil && s.Undo.State == events.StepError
		if held && w.task.Plan.Steps[i].ID != but {
			return true
		}
	}
	return false
}

// checkRecords holds what a decision writes against what it says.
func (w *world) checkRecords(d *Decision) {
	if (d.Ignored != "" || d.Unusable != nil) && len(d.Events) > 0 {
		w.t.Fatalf("ignored (%q) or unusable (%v), and yet events: %v", d.Ignored, d.Unusable, d.Events)
	}
	ns := events.Namespace(events.DefaultNamespace)
	next, requests := 0, 0
	var told, toTell []string
	alerts, held := 0, 0
	for i := range d.Records {
		r := &d.Records[i]
		if n := len(r.Key) + len(r.Value) + 4096; n > maxRecordBytes {
			w.t.Fatalf("a record of %d bytes to %s", n, r.Topic)
		}
		switch _, request := ns.AgentOf(r.Topic); {
		case r.Topic == ns.Events():
			if next >= len(d.Events) {
				w.t.Fatalf("more event records than events")
			}
			toTell = append(toTell, w.checkEvent(d.Events[next], r)...)
			if _, ok := d.Events[next].Fact.(*events.TaskHeld); ok {
				held++
			}
			if f, ok := d.Events[next].Fact.(*events.AttemptStarted); ok {
				requests++
				w.checkRequest(d, f, d.Events[next])
			}
			next++
		case request:
			requests--
		case r.Topic == ns.Notifications():
			told = append(told, w.notification(r))
		case r.Topic == ns.Alerts():
			alerts++
		case r.Topic != ns.Answers():
			w.t.Fatalf("a record to %s", r.Topic)
		}
	}
	if next != len(d.Events) || requests != 0 || alerts != held {
		w.t.Fatalf("%d records of %d events, %d attempts without a request, %d alerts of %d holds", next, len(d.Events), requests, alerts, held)
	}
	if d.Ignored == IgnoredDuplicate && len(told) > 0 { // the present status, again
		toTell = []string{told[0]}
		if id := events.TaskEventID("t", w.fold.StatusSeq); !strings.HasPrefix(told[0], id+" ") {
			w.t.Fatalf("the present status is that of %s; told: %v", id, told)
		}
	}
	if d.Unusable == nil && !slices.Equal(told, toTell) {
		w.t.Fatalf("told %v instead of %v", told, toTell)
	}
}

// notification reads one as "<ce_id> <status>".
func (w *world) notification(r *events.Record) string {
	n, err := events.DecodeNotification(r)
	if err != nil {
		w.t.Fatal(err)
	}
	id, _ := r.Header(events.HeaderID)
	if to, _ := r.Header(events.HeaderReplyTo); to != "app.replies" || n.Task != "t" || string(r.Key) != "t" {
		w.t.Fatalf("a notification to %q of %q", to, n.Task)
	}
	return id + " " + n.Status
}

// checkEvent reads an event back from its record and folds it. It returns what
// is to be told of it.
func (w *world) checkEvent(e *events.Event, r *events.Record) (toTell []string) {
	r.Offset = int64(len(w.records)) + 1
	w.records = append(w.records, *r)
	got, err := events.DecodeEvent(r)
	if err != nil {
		w.t.Fatal(err)
	}
	if got.Task != e.Task || got.Seq != e.Seq || !bytes.Equal(got.Value(), r.Value) {
		w.t.Fatalf("event %s read back as\n%s\ninstead of\n%s", e.ID(0), got.Value(), r.Value)
	}
	w.observe(got)
	if w.fold, err = events.Evolve(w.fold, got, events.Hash(e.Fact.Type(), r.Value)); err != nil {
		w.t.Fatal(err)
	}
	if err := w.part.Evolve(got); err != nil {
		w.t.Fatal(err)
	}
	w.timers.Evolve(got)
	if w.log.Add(r); len(w.log.Faults) > 0 {
		w.t.Fatalf("%v", w.log.Faults)
	}
	if w.fold.ReplyTo == "" || w.fold.StatusSeq != e.Seq {
		return nil
	}
	switch {
	case e.Seq == 1:
		return []string{e.ID(0) + " " + events.StatusReceived}
	case w.fold.State != events.StateProcessing:
		return []string{e.ID(0) + " " + string(w.fold.State)}
	}
	return nil
}

// observe holds an event against the state before it and what was seen so far.
func (w *world) observe(e *events.Event) {
	switch f := e.Fact.(type) {
	case *events.TaskReceived:
		for i := range f.Plan.Steps {
			w.effects[f.Plan.Steps[i].ID] = &effect{}
		}
	case *events.AttemptStarted:
		w.started(e, f)
	case *events.AttemptCompleted:
		if f.Kind == events.Do {
			*w.effects[f.Step] = effect{completed: true}
		}
	case *events.AttemptFailed:
		if w.fold.Steps[w.index(f.Step)].State != events.StepRunning && f.Kind == events.Do {
			w.counted(events.Slot{Step: f.Step, Kind: f.Kind})
		}
		if f.Kind == events.Do && f.Effect != events.EffectNone {
			w.effects[f.Step].unknown = true
		}
	case *events.AttemptExpired:
		if f.Kind == events.Do {
			w.effects[f.Step].unknown = true
		}
	case *events.AttemptRejected:
		w.run(events.Slot{Step: f.Step, Kind: f.Kind}).rejected = true
	case *events.RunReleased:
		if f.As == events.StepCompleted {
			*w.effects[f.Step] = effect{completed: true}
		}
	case *events.TaskResumed:
		w.resumed()
	case *events.TaskUndone:
		w.undone(func(x *effect) bool { return x.completed || x.unknown })
	case *events.TaskCancelled:
		if w.fold.State == events.StateUndoing { // else the operator leaves what can't be undone
			keep := w.fold.Keep
			w.undone(func(x *effect) bool { return x.unknown && !x.completed || x.completed && !keep })
		}
	}
}

func (w *world) index(step string) int {
	i, ok := w.fold.Plan.Step(step)
	if !ok {
		w.t.Fatalf("an event of step %q, which the plan hasn't", step)
	}
	return i
}

func (w *world) run(s events.Slot) *ran {
	if w.runs[s] == nil {
		w.runs[s] = &ran{}
	}
	return w.runs[s]
}

// counted: the budget, counted anew from what happened.
func (w *world) counted(s events.Slot) {
	r := w.run(s)
	r.attempts++
	rule := w.fold.Plan.AttemptsOf(w.index(s.Step), s.Kind)
	most := rule.MaxAttempts
	if rule.CoolDown > 0 {
		most++
	}
	if r.attempts > most {
		w.t.Fatalf("attempt %d of %v; at most %d", r.attempts, s, most)
	}
}

// started: an attempt begins only in a task that goes on, with time left, under
// the key that it should have.
func (w *world) started(e *events.Event, f *events.AttemptStarted) {
	want := events.StateProcessing
	if f.Kind == events.Undo {
		want = events.StateUndoing
		if x := w.effects[f.Step]; !x.completed && !x.unknown {
			w.t.Fatalf("undo of step %q, of which nothing happened", f.Step)
		}
		if x := w.effects[f.Step]; w.fold.Keep && x.completed {
			w.t.Fatalf("undo of step %q, which was to be kept", f.Step)
		}
	}
	if w.fold.State != want {
		w.t.Fatalf("%s of step %q begins in state %s", f.Kind, f.Step, w.fold.State)
	}
	if !e.Due.After(e.At) {
		w.t.Fatalf("%s of step %q begins at %s with complete-by %s", f.Kind, f.Step, e.At, e.Due)
	}
	s := events.Slot{Step: f.Step, Kind: f.Kind}
	w.counted(s)
	r := w.run(s)
	if r.key != "" && (r.key == f.Key) == r.renewable {
		w.t.Fatalf("the key of %v goes from %s to %s; renewable: %v", s, r.key, f.Key, r.renewable)
	}
	r.key, r.rejected, r.renewable = f.Key, false, false
	for other, o := range w.runs {
		if other != s && o.key == f.Key {
			w.t.Fatalf("%v and %v have the same key", s, other)
		}
	}
}

// resumed: what doesn't run starts afresh.
func (w *world) resumed() {
	for s, r := range w.runs {
		run := w.fold.Run(w.index(s.Step), s.Kind)
		if run == nil || run.State == events.StepRunning || (s.Kind == events.Undo) != (w.fold.Ending != "") {
			continue
		}
		r.attempts = 0
		r.renewable = r.renewable || r.rejected
	}
}

// undone: no effect is left that was to be undone.
func (w *world) undone(wanted func(*effect) bool) {
	for i := range w.fold.Steps {
		p, s := &w.fold.Plan.Steps[i], &w.fold.Steps[i]
		if p.Undo != nil && wanted(w.effects[p.ID]) != (s.State == events.StepUndone) {
			w.t.Fatalf("the task has ended with step %q %s; its effect: %+v", p.ID, s.State, *w.effects[p.ID])
		}
	}
}

// checkRequest finds the one request of an attempt that started.
func (w *world) checkRequest(d *Decision, f *events.AttemptStarted, e *events.Event) {
	id := events.RequestID("t", events.RequestRef{Step: f.Step, Kind: f.Kind, Attempt: f.Attempt})
	var found []*events.Record
	for i := range d.Records {
		if got, ok := d.Records[i].Header(events.HeaderRequest); ok && got == id {
			found = append(found, &d.Records[i])
		}
	}
	if len(found) != 1 {
		w.t.Fatalf("attempt %s has %d requests", id, len(found))
	}
	r := found[0]
	q, err := events.DecodeRequest(r)
	if err != nil {
		w.t.Fatal(err)
	}
	agent, operation := w.fold.Plan.Agent(w.index(f.Step), f.Kind)
	topic := events.Namespace(events.DefaultNamespace).Requests(agent)
	if q.IdempotencyKey != f.Key || !q.CompleteBy.Equal(e.Due) || q.Operation != operation || r.Topic != topic || f.Agent != agent || !json.Valid(q.Value) {
		w.t.Fatalf("attempt %s is asked for by %+v, to %s", id, q, r.Topic)
	}
	n, last := w.requests[agent], w.run(events.Slot{Step: f.Step, Kind: f.Kind})
	if r.Partition < 0 || r.Partition >= n {
		w.t.Fatalf("attempt %s goes to partition %d of %d", id, r.Partition, n)
	}
	if n > 1 && n == last.of && f.Attempt == last.last+1 && r.Partition == last.partition {
		w.t.Fatalf("attempt %s goes where the one before went: to partition %d of %d", id, r.Partition, n)
	}
	last.last, last.partition, last.of = f.Attempt, r.Partition, n
	w.sent = append(w.sent, q)
	w.checkValue(q)
}

// checkValue: under one key an agent is asked for one thing, and an undo says
// what is to be undone.
func (w *world) checkValue(q *events.Request) {
	for _, before := range w.sent {
		if before.IdempotencyKey == q.IdempotencyKey && !bytes.Equal(before.Value, q.Value) {
			w.t.Fatalf("key %s asked for %s, now for %s", q.IdempotencyKey, before.Value, q.Value)
		}
	}
	if q.Ref.Kind == events.Do {
		return
	}
	var v struct {
		Of     json.RawMessage `json:"of"`
		UndoOf struct {
			Key     string `json:"idempotency_key"`
			Outcome string
		} `json:"undo_of"`
	}
	if err := json.Unmarshal(q.Value, &v); err != nil {
		w.t.Fatal(err)
	}
	outcome := "unknown"
	if w.effects[q.Ref.Step].completed {
		outcome = "completed"
	}
	of, _ := w.definition.Steps[w.index(q.Ref.Step)].Undo.Input.(map[string]any) // nil: none
	if key := w.run(events.Slot{Step: q.Ref.Step, Kind: events.Do}).key; v.UndoOf.Key != key || v.UndoOf.Outcome != outcome {
		w.t.Fatalf("the undo of step %q, which is %s under the key %s, is asked for by %s", q.Ref.Step, outcome, key, q.Value)
	}
	if _, added := of["of"]; added != (v.Of != nil) {
		w.t.Fatalf("the undo of step %q has undo.input: %v; it is asked for by %s", q.Ref.Step, added, q.Value)
	}
}

// checkState holds the state after a decision against the fold of the records,
// and against what every state must have.
func (w *world) checkState() {
	if got, want := encode(w.task), encode(w.fold); got != want {
		w.t.Fatalf("the state and the fold of its events differ:\n%s\n%s", got, want)
	}
	if w.task == nil {
		return
	}
	back, err := events.DecodeTask(w.task.Encode())
	if err != nil || encode(back) != encode(w.task) {
		w.t.Fatalf("the stored form of %s reads back as %s, %v", encode(w.task), encode(back), err)
	}
	armed := map[events.Slot]events.Timer{}
	for _, a := range w.timers.Armed {
		armed[a.Slot] = a.Timer
	}
	own := w.ownTimers()
	if !maps.Equal(armed, own) {
		w.t.Fatalf("a supervisor knows the timers %v, the task has %v", armed, own)
	}
	switch state := w.task.State; {
	case state == events.StateProcessing && !w.task.Timer.Armed(), state != events.StateProcessing && w.task.Timer.Armed():
		w.t.Fatalf("the task is %s; its own timer: %+v", state, w.task.Timer)
	case state == events.StateUndoing && len(armed) == 0:
		w.t.Fatalf("the task is undoing, and nothing will ever happen: %s", encode(w.task))
	case state.Terminal() && len(armed) > 0:
		w.t.Fatalf("the task is %s and has timers: %v", state, armed)
	}
}

// ownTimers are the timers that the task has armed; every running attempt has
// one, at its complete-by.
func (w *world) ownTimers() map[events.Slot]events.Timer {
	own := map[events.Slot]events.Timer{}
	if w.task.Timer.Armed() {
		own[events.Slot{}] = w.task.Timer
	}
	for i := range w.task.Steps {
		for _, k := range []events.Kind{events.Do, events.Undo} {
			run := w.task.Run(i, k)
			if run == nil {
				continue
			}
			slot := events.Slot{Step: w.task.Plan.Steps[i].ID, Kind: k}
			if run.Timer.Armed() {
				own[slot] = run.Timer
			}
			running := run.State == events.StepRunning && w.task.Open()
			if running && (!run.Timer.Armed() || !run.Timer.Due.Equal(run.CompleteBy)) {
				w.t.Fatalf("%v runs until %s; its timer: %+v", slot, run.CompleteBy, run.Timer)
			}
			if w.task.State == events.StateError && !running && run.Timer.Armed() {
				w.t.Fatalf("the task is held; %v, which is %s, has a timer", slot, run.State)
			}
		}
	}
	return own
}

// rebuild folds all records anew.
func (w *world) rebuild() {
	var t *events.Task
	for i := range w.records {
		e, err := events.DecodeEvent(&w.records[i])
		if err != nil {
			w.t.Fatal(err)
		}
		if t, err = events.Evolve(t, e, events.Hash(e.Fact.Type(), w.records[i].Value)); err != nil {
			w.t.Fatal(err)
		}
	}
	if encode(t) != encode(w.task) {
		w.t.Fatalf("the rebuild differs from the live state:\n%s\n%s", encode(t), encode(w.task))
	}
}
