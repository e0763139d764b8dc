package scheduler

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/workflow"
)

// maxRecordBytes is the largest record that Kafka takes by default.
const maxRecordBytes = 1_000_012

// scenario is one task with its agents, supervisor and operators. It learns about the task only from the records of
// decisions, and checks each decision against them.
type scenario struct {
	dice       // of the current move
	h          *history
	definition *workflow.Definition // of the task's version
	versions   []*workflow.Program
	gone       bool // the definition is missing or was replaced
	other      *workflow.Program
	requests   map[string]int32 // partition counts of the agents that exist
	now        time.Time
	offset     int64
	cause      events.Cause // of the last input
	free       int          // free slots of agents, in a busy history
	replyTo    string       // of the current submission
	bodyBytes  int          // size of agents' bodies; 0: small
	every      dice         // of everyInput
	tell       bool         // record the moves in told
	told       []string
	counts     map[string]int

	task     *events.Task          // the task after the last decision
	encoded  string                // its encoding
	fold     *events.Task          // of the records
	part     events.PartitionState // of the records
	timers   events.Timers         // of the records
	verify   *verify.Checker       // checks all written records
	records  []events.Record       // of events
	sent     []*events.Request
	underway []*events.Reply // sent, not yet delivered
	asked    []*events.Recovery
	controls []*events.Control
	accepted []events.Accepted
	effects  map[string]*effect
	runs     map[events.Slot]*ran
	waitEnds map[string]time.Time // of running waits, by step
	heard    heard
	ledger   *ledger
	undo     undoing
	// settled contains the steps whose effect the ledger doesn't know: an operator released them, or a reply was
	// accepted that no service sent.
	settled    map[string]bool
	leftBehind bool // cancelled with effects that can't be undone
}

// ran is what was observed of the attempts of a run.
type ran struct {
	attempts  int  // since the last resubmit
	final     bool // the last error isn't retried
	key       string
	rejected  bool  // the present key was rejected
	renewable bool  // the task was resubmitted after the rejection
	last      int   // last attempt with a request
	partition int32 // partition of that request
	of        int32 // number of partitions
	calls     int   // of a repeat, since the last resubmit
	about     int   // of a check: the attempt of the step that it is about
	checked   int   // of a check: the attempt of the step that the last one that ended is about
	granted   int   // attempts that the plan before a migration allowed
	nextCall  time.Time
	reported  time.Time // when the last progress was recorded
}

// broken is a broken promise. Its format identifies it.
type broken struct{ format, text string }

func (w *scenario) failf(format string, args ...any) {
	panic(broken{format, fmt.Sprintf(format, args...)})
}

// say records a move for the report of a failure.
func (w *scenario) say(format string, args ...any) {
	if w.tell {
		w.told = append(w.told, fmt.Sprintf("%8s  ", w.now.Sub(start).Truncate(time.Millisecond))+fmt.Sprintf(format, args...))
	}
}

func newScenario(h *history, ds []*workflow.Definition, tell bool) *scenario {
	w := &scenario{h: h, bodyBytes: h.bodyBytes, definition: ds[0], now: start, tell: tell, counts: map[string]int{},
		requests: map[string]int32{}, effects: map[string]*effect{}, runs: map[events.Slot]*ran{}, waitEnds: map[string]time.Time{}, heard: heard{received: map[string]bool{}}, settled: map[string]bool{},
		verify: verify.New(verify.Options{Keep: true, Inputs: true, Deadletters: true, Alerts: true, Requests: true, Whole: true, Ledger: h.honest})}
	w.ledger = newLedger(w.verify.Effect)
	w.ledger.repeats = w.repeats
	w.ledger.asked = w.askedUnder
	for i, a := range agents {
		w.requests[a] = h.partitions[i]
	}
	for _, d := range ds {
		p, err := workflow.Compile(d)
		if err != nil {
			w.failf("version %d: %v", d.Version, err)
		}
		w.versions = append(w.versions, p)
	}
	o := *ds[0]
	o.Steps = slices.Clone(o.Steps)
	last := &o.Steps[len(o.Steps)-1]
	if last.StepKind() != events.CallStep {
		*last = workflow.Step{ID: last.ID, Needs: last.Needs, Agent: agents[0]}
	}
	last.Operation = "another"
	var err error
	if w.other, err = workflow.Compile(&o); err != nil {
		w.failf("the other definition: %v", err)
	}
	w.claim()
	return w
}

func (w *scenario) claim() {
	e := &events.Event{Seq: 1, Epoch: 1, At: w.now, Fact: &events.PartitionClaimed{Owner: "test"}}
	r := e.Record(events.DefaultNamespace, "test", 0, e.Seal(nil))
	w.records = append(w.records, r)
	if err := w.part.Evolve(e); err != nil {
		w.failf("the claim: %v", err)
	}
	w.verify.Event(&r)
}

// clock returns the time of a decision as a worker does: never before the partition's last decision.
func (w *scenario) clock() time.Time {
	if w.now.Before(w.part.At) {
		return w.part.At
	}
	return events.Millis(w.now)
}

// Program implements Definitions.
func (w *scenario) Program(name string, version int) (*workflow.Program, bool) {
	if w.gone && w.h.another && w.task != nil {
		return w.other, true
	}
	known := !w.gone && name == w.definition.Name && version <= len(w.versions)
	return w.versions[min(max(version, 1), len(w.versions))-1], known
}

// decide decodes one input from its record, decides on it, checks the decision, and applies it.
func (w *scenario) decide(inbox events.Inbox, r events.Record) (events.Input, Decision) {
	w.counts["commands"]++
	w.offset++
	r.Partition, r.Offset = 0, w.offset
	w.verify.Input(&r)
	task, in, err := events.DecodeInput(inbox, &r)
	if err != nil || task != "t" {
		w.failf("a record of %s is read as one of task %q: %v", inbox, task, err)
	}
	cause := events.Cause{Inbox: inbox, Offset: w.offset}
	w.cause = cause
	env := w.env()
	d := w.decideBy(env, func(t *events.Task) Decision { return Decide(t, in, cause, env) })
	w.checkFinished(in, cause, env, &d)
	if r, ok := in.(*events.Recovery); ok {
		w.checkRecovery(r, &d)
	}
	w.count(&d)
	w.checkRecords(&d)
	if d.Unusable != nil {
		letter := events.Deadletter(events.DefaultNamespace, "test", &r, d.Unusable)
		w.verify.Deadletter(&letter)
	}
	w.take(&d)
	return in, d
}

// take applies a decision.
func (w *scenario) take(d *Decision) {
	w.verified(false)
	w.task = d.Task
	w.checkState(len(d.Events) > 0)
	if w.task != nil {
		w.noneWaits()
		w.everyInput()
	}
}

func (w *scenario) env() *Env {
	env := &Env{Token: testToken, Now: w.clock(), Namespace: events.DefaultNamespace, Source: "test", Epoch: 1, Definitions: w, Requests: w.requests}
	if w.h.busy {
		env.Slots = slotsOf{w.free, w.waiting()}
	}
	return env
}

// decideBy makes a decision several times, and checks that the results are equal. Each time it uses another copy of the
// task: a clone, as in a transaction, or a decoded one, as after a read from the store.
func (w *scenario) decideBy(env *Env, decide func(*events.Task) Decision) Decision {
	d := decide(w.task.Clone())
	if d.NeedDefinitions {
		if d.Events != nil || d.Records != nil || d.Task != nil || d.Ignored != "" || d.Unusable != nil {
			w.failf("a decision that needs definitions decides something: %+v", d)
		}
		env.DefinitionsRead = true
		d = decide(w.task.Clone())
	}
	if again := decide(w.task.Clone()); !slices.EqualFunc(again.Records, d.Records, sameRecord) {
		w.failf("the same input, decided twice:\n%v\n%v", d.Records, again.Records)
	}
	if len(d.Events) > 0 && encode(w.task) != w.encoded {
		w.failf("Decide changed the state that it was given a clone of")
	}
	var own *events.Task
	if w.task != nil {
		var err error
		if own, err = events.DecodeTask([]byte(w.encoded)); err != nil {
			w.failf("%v", err)
		}
	}
	if o := decide(own); !slices.EqualFunc(o.Records, d.Records, sameRecord) {
		w.failf("decided on a state of its own and on a clone:\n%v\n%v", o.Records, d.Records)
	}
	return d
}

// checkFinished checks that the stored form of a finished task leads to the same decision as the whole task.
func (w *scenario) checkFinished(in events.Input, cause events.Cause, env *Env, d *Decision) {
	if w.task == nil || w.task.Open() {
		return
	}
	w.counts["inputs of finished tasks"]++
	kept, err := events.DecodeTask(w.task.Finished().Encode())
	if err != nil {
		w.failf("what is kept of a finished task can't be read: %v", err)
	}
	k := Decide(kept, in, cause, env)
	if len(d.Events) > 0 {
		w.checkReopened(in, cause, env, d, k.NeedHistory)
		return
	}
	if len(k.Events)+len(d.Events) > 0 || k.Ignored != d.Ignored || !reflect.DeepEqual(k.Unusable, d.Unusable) || !slices.EqualFunc(k.Records, d.Records, sameRecord) {
		w.failf("on a finished task is decided %+v, on what is kept of it %+v", *d, k)
	}
}

// checkReopened checks that an undo of a processed task is decided alike on the stored form, once the task's events were
// read again.
func (w *scenario) checkReopened(in events.Input, cause events.Cause, env *Env, d *Decision, needed bool) {
	x, ok := in.(*events.Control)
	if !ok || x.Command != events.UndoTask || !x.Processed || w.task.State != events.StateProcessed || !needed {
		w.failf("%T of a finished task in state %s leads to events; its history is needed: %v", in, w.task.State, needed)
	}
	w.counts["processed tasks undone"]++
	var fold events.Fold
	for i := range w.records {
		if r := &w.records[i]; string(r.Key) == w.task.ID && (fold.Task == nil || fold.Task.Seq < w.task.Seq) {
			if _, err := fold.Add(r); err != nil {
				w.failf("%v", err)
			}
		}
	}
	kept, err := events.DecodeTask(w.task.Finished().Encode())
	if err != nil {
		w.failf("%v", err)
	}
	env.Histories = Histories{w.task.ID: {Task: fold.Task}}
	if k := Decide(kept, in, cause, env); !slices.EqualFunc(k.Records, d.Records, sameRecord) || encode(k.Task) != encode(d.Task) {
		w.failf("on a processed task is decided\n%v\non what is kept of it, and its history,\n%v", d.Records, k.Records)
	}
}

// verified checks that package verify finds no fault in the records. Some faults only show at the end.
func (w *scenario) verified(end bool) {
	if !end && w.verify.Broken() == 0 {
		return
	}
	r := w.verify.Finish(w.clock())
	for _, f := range r.Faults {
		w.failf("verify finds that "+f.Promise+" is broken: %s", r)
	}
}

// count counts the results of a decision.
func (w *scenario) count(d *Decision) {
	w.counts["events"] += len(d.Events)
	switch {
	case d.Unusable != nil:
		w.counts["dead letters"]++
		w.say("    unusable: %s", d.Unusable.Reason)
	case d.Ignored != "":
		w.counts["ignored: "+string(d.Ignored)]++
		w.say("    ignored: %s", d.Ignored)
	}
}

// mostEarly is how early a recovery may be accepted. It is the documented promise, independent of the scheduler's
// constant.
const mostEarly = 100 * time.Millisecond

// checkRecovery checks that a recovery with an effect names an armed timer that is due, within the clock tolerance.
func (w *scenario) checkRecovery(r *events.Recovery, d *Decision) {
	if len(d.Events) == 0 {
		return
	}
	for _, a := range w.timers.Armed {
		if a.Timer.Seq == r.Timer && a.Slot.Step == r.Step && (r.Step == "" || a.Slot.Kind == r.Kind) {
			if early := a.Timer.Due.Sub(w.clock()); early > mostEarly {
				w.failf("%+v was accepted %s early", *r, early)
			}
			if d.Events[0].At.Before(a.Timer.Due) {
				w.failf("%+v was accepted at %s, before the timer's due, %s", *r, d.Events[0].At, a.Timer.Due)
			}
			w.checkAction(r, &a, d)
			return
		}
	}
	w.failf("%+v was accepted; armed are %+v", *r, w.timers.Armed)
}

// checkAction checks the action of an accepted recovery. It is the one that the policy calls for, with three
// exceptions. The recovery only ends an attempt of a task that is held or being undone. Or it asks for a wait that is
// over by now. Or the attempt was running during a hold, so its policy may be an older one that the state doesn't
// contain. Then a cool-down may follow although the supervisor asked for the policy's on_error.
func (w *scenario) checkAction(r *events.Recovery, a *events.Armed, d *Decision) {
	if a.Policy.Timer == events.TimerAttempt && (w.task.State == events.StateError || w.task.State == events.StateUndoing && r.Kind == events.Do) {
		return
	}
	if !a.Policy.CompleteBy.IsZero() && !a.Policy.CompleteBy.Equal(w.task.CompleteBy) {
		return // resubmitted since then, with another policy
	}
	want := a.Policy.Next("t", r.Step, r.Kind, a.Attempt, a.Timer.Due, d.Events[0].At)
	late := want.Action == events.ActionRetry && r.Action == events.ActionWait
	through := string(r.Action) == a.Policy.OnError && a.Timer.Seq < w.task.Timer.Seq && want.CoolDown && coolsDown(d)
	if r.Action != want.Action && !late && !through {
		w.failf("%+v was accepted; the policy calls for %s", *r, want.Action)
	}
}

// coolsDown reports whether a decision starts a cool-down.
func coolsDown(d *Decision) bool {
	return slices.ContainsFunc(d.Events, func(e *events.Event) bool {
		f, ok := e.Fact.(*events.AttemptWaiting)
		return ok && f.CoolDown
	})
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

// submit checks the decision on a submission.
func (w *scenario) submit(s *events.Submission) {
	was := w.task
	w.replyTo = s.ReplyTo
	w.say("submit %s", short(s.Input))
	_, d := w.decide(events.Tasks, s.Record(events.DefaultNamespace, "shop"))
	refused := func(r events.Reason) bool { return d.Unusable != nil && d.Unusable.Reason == r && len(d.Events) == 0 }
	switch {
	case d.Unusable != nil && d.Unusable.Reason == events.ReasonBadReplyTo:
		if s.ReplyTo == w.h.submission.ReplyTo {
			w.failf("reply_to %q was refused: %s", s.ReplyTo, d.Unusable.Detail)
		}
	case was == nil && w.gone:
		if !refused(events.ReasonUnknownWorkflow) {
			w.failf("submitted to an unknown workflow: %+v", d)
		}
	case was == nil:
		if len(d.Events) < 2 {
			w.failf("a submission led to %+v", d)
		}
	case s.Digest() == was.Digest:
		if d.Ignored != IgnoredDuplicate || len(d.Events) > 0 {
			w.failf("the same submission again led to %+v", d)
		}
	default:
		if !refused(events.ReasonIDConflict) {
			w.failf("another body under the same id led to %+v", d)
		}
	}
}

// control checks that a control is answered once, with the sequence number of its first event or with a reason.
func (w *scenario) control(x *events.Control) Decision {
	others := w.othersInError(x.Step)
	w.say("%s step %q keep=%v as %q version %d dry run %v request %s", x.Command, x.Step, x.Keep, x.As, x.Version, x.DryRun, x.RequestID)
	_, d := w.decide(events.Controls, x.Record(events.DefaultNamespace, "cli"))
	var answers []*events.Answer
	for i := range d.Records {
		if d.Records[i].Topic == events.Namespace(events.DefaultNamespace).Answers() {
			a, err := events.DecodeAnswer(&d.Records[i])
			if err != nil {
				w.failf("%v", err)
			}
			answers = append(answers, a)
		}
	}
	if len(answers) != 1 || answers[0].Control != x.ID {
		w.failf("control %s got the answers %+v", x.ID, answers)
	}
	a := answers[0]
	again := slices.IndexFunc(w.accepted, func(a events.Accepted) bool { return a.RequestID == x.RequestID })
	switch {
	case again >= 0:
		if !a.Accepted || d.Ignored != IgnoredDuplicate || a.Seq != w.accepted[again].Seq || len(d.Events) > 0 {
			w.failf("control %s, accepted as %d, again: %+v", x.ID, w.accepted[again].Seq, a)
		}
	case a.Accepted && x.DryRun:
		if len(d.Events) > 0 {
			w.failf("the dry run %s led to %v", x.ID, d.Events)
		}
	case a.Accepted:
		if len(d.Events) == 0 || a.Seq != d.Events[0].Seq {
			w.failf("control %s was accepted as %d; its events: %v", x.ID, a.Seq, d.Events)
		}
		if x.Command == events.Release && others && len(d.Events) != 1 && !(x.As == events.StepUndone && len(d.Events) == 2 && isCaught(d.Events[1])) {
			w.failf("step %q was released, another is in error, and the task continues: %v", x.Step, d.Events)
		}
		w.counts["controls accepted"]++
		w.accepted = append(w.accepted, events.Accepted{RequestID: x.RequestID, Seq: a.Seq})
		w.accepted = w.accepted[max(0, len(w.accepted)-events.MaxAcceptedControls):]
	case len(d.Events) > 0 || a.Reason == "":
		w.failf("control %s was refused for %q; its events: %v", x.ID, a.Reason, d.Events)
	}
	return d
}

// othersInError reports whether a step other than but holds the task.
func (w *scenario) othersInError(but string) bool {
	if w.task == nil {
		return false
	}
	for i := range w.task.Steps {
		s := w.task.Steps[i]
		held := w.task.Ending == "" && s.State == events.StepError || s.Undo != nil && s.Undo.State == events.StepError
		if held && w.task.Plan.Steps[i].ID != but {
			return true
		}
	}
	return false
}

// checkEvent reads an event back from its record and folds it. It returns the notifications to expect.
func (w *scenario) checkEvent(e *events.Event, r *events.Record) (toTell []string) {
	r.Offset = int64(len(w.records)) + 1
	w.records = append(w.records, *r)
	got, err := events.DecodeEvent(r)
	if err != nil {
		w.failf("%v", err)
	}
	if got.Task != e.Task || got.Seq != e.Seq || !bytes.Equal(got.Value(), r.Value) {
		w.failf("event %s read back as\n%s\ninstead of\n%s", e.ID(0), got.Value(), r.Value)
	}
	w.observe(got)
	if w.fold, err = events.Evolve(w.fold, got, events.Hash(e.Fact.Type(), r.Value)); err != nil {
		w.failf("%v", err)
	}
	if err := w.part.Evolve(got); err != nil {
		w.failf("%v", err)
	}
	w.timers.Evolve(got)
	w.verify.Event(r)
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

// observe checks an event against the state before it and against earlier events.
func (w *scenario) observe(e *events.Event) {
	switch f := e.Fact.(type) {
	case *events.TaskReceived:
		for i := range f.Plan.Steps {
			w.effects[f.Plan.Steps[i].ID] = &effect{}
		}
	case *events.TaskMigrated:
		w.migrated(f)
	case *events.RunReleased:
		w.settled[f.Step] = true
		if f.As == events.StepCompleted {
			*w.effects[f.Step] = effect{completed: true, completedAt: e.Seq}
		} else {
			w.undoEnds(f.Step)
		}
	case *events.TaskHeld:
		w.interruptChecks()
	case *events.RunCaught:
		w.caught(f)
	case *events.TaskUndoing: // ends all waits
		w.interruptChecks()
		w.undoingAllowed(f)
		w.takeOver()
		w.counts["waits interrupted"] += len(w.waitEnds)
		clear(w.waitEnds)
	case *events.TaskResumed:
		w.resumed()
	case *events.TaskUndone:
		w.nothingLeft(events.StateUndone)
		w.undone(func(x *effect) bool { return x.completed || x.unknown })
	case *events.TaskCancelled:
		if w.leftBehind = w.fold.State != events.StateUndoing; w.leftBehind {
			return // the operator keeps effects that can't be undone
		}
		keep := w.fold.Keep
		w.nothingLeft(events.StateCancelled)
		w.undone(func(x *effect) bool { return x.unknown && !x.completed || x.completed && !keep })
	default:
		w.observeAttempt(e)
	}
}

// observeAttempt is observe for events of a run.
func (w *scenario) observeAttempt(e *events.Event) {
	switch f := e.Fact.(type) {
	case *events.AttemptStarted:
		w.started(e, f)
	case *events.AttemptCompleted:
		if f.Kind == events.Undo {
			w.undoEnds(f.Step)
			return
		}
		x := w.effects[f.Step]
		*x = effect{completed: true, startedAt: x.startedAt, completedAt: e.Seq}
	case *events.AttemptFailed:
		if f.Deferred { // no effect
			w.run(events.Slot{Step: f.Step, Kind: f.Kind}).attempts--
			w.counts["deferrals"]++
		}
		run := w.fold.Run(w.index(f.Step), f.Kind)
		if run == nil || run.State != events.StepRunning { // its agent is missing
			w.checkAbout(f.Step, f.Kind)
			w.counted(events.Slot{Step: f.Step, Kind: f.Kind})
			if f.Kind == events.Undo {
				w.undoBegins(f.Step)
			}
		}
		w.endedBy(f.Step, f.Kind, f.Error.Code)
		w.ended(f.Step, f.Kind, f.Effect != events.EffectNone)
	case *events.AttemptProgressed:
		w.progressed(e, f)
	case *events.AttemptExpired:
		w.expired(f)
		w.endedBy(f.Step, f.Kind, events.CodeExpired)
		w.ended(f.Step, f.Kind, true)
	case *events.AttemptRejected:
		w.run(events.Slot{Step: f.Step, Kind: f.Kind}).rejected = f.Kind != events.Check
		w.unanswered(f.Step, f.Kind)
		w.ended(f.Step, f.Kind, false)
	case *events.CallRepeated:
		w.callEnded(e, f)
	case *events.CheckCompleted:
		w.checked(e, f)
	case *events.AttemptWaiting:
		if f.CoolDown {
			w.counts["cool-downs"]++
		}
	case *events.WaitStarted:
		w.afterAncestors(f.Step, "waiting")
		w.waitEnds[f.Step] = e.Due
	case *events.WaitCompleted:
		w.counts["waits ended"]++
		if w.fold.State == events.StateError {
			w.counts["waits ended during a hold"]++
		}
		if end := w.waitEnds[f.Step]; end.IsZero() || e.At.Before(end) {
			w.failf("the wait of step %q, which ends at %s, ended at %s", f.Step, end, e.At)
		}
		delete(w.waitEnds, f.Step)
	case *events.TaskSignalled, *events.SignalStarted, *events.SignalCompleted:
		w.observeSignal(e)
	case *events.RunErrored:
		w.unanswered(f.Step, f.Kind)
		if w.callsEnd(f); f.Kind == events.Undo {
			w.undoBegins(f.Step)
		}
	case *events.RunSkipped:
		w.afterAncestors(f.Step, "skipped")
		if n := w.fold.Steps[w.index(f.Step)].Attempt; n > 0 {
			w.failf("step %q is skipped after attempt %d", f.Step, n)
		}
	}
}

// afterAncestors checks that a step has no event before all of its ancestors are done.
func (w *scenario) afterAncestors(step, what string) {
	seen := map[int]bool{}
	var visit func(int)
	visit = func(i int) {
		for _, n := range w.fold.Plan.Steps[i].Needs {
			if s := w.fold.Steps[n].State; !isDone(s) {
				w.failf("step %q is %s while step %q, which it comes after, is %s", step, what, w.fold.Plan.Steps[n].ID, s)
			}
			if !seen[n] {
				seen[n] = true
				visit(n)
			}
		}
	}
	visit(w.index(step))
}
