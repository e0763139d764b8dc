package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

const testNamespace = events.Namespace("t.")

// world is a log of schedules with a clock that the test sets.
type world struct {
	t       *testing.T
	log     []events.Record
	state   *State
	decider Decider
	records Records
	now     time.Time
}

func newWorld(t *testing.T, at string, definition string) *world {
	t.Helper()
	w := &world{t: t, state: NewState(), decider: Decider{Epoch: 1, Namespace: testNamespace}, records: Records{Namespace: testNamespace, Source: "test"}, now: instant(t, at)}
	w.define(definition)
	w.append(w.records.Claimed(Claim{Epoch: 1, Owner: "one"}))
	return w
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func (w *world) apply(r events.Record) {
	r.Time = w.now
	w.log = append(w.log, r)
	if _, _, is := events.ParseNamedKey(string(r.Key)); is {
		w.state.ApplyDefinition(&r)
		return
	}
	w.state.Apply(&r)
}

func (w *world) append(r events.Record, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	w.apply(r)
}

// define applies a schedule "s"; empty: it is deleted.
func (w *world) define(yaml string) {
	w.t.Helper()
	n := events.NamedDefinition{Kind: events.ScheduleDefinition, Name: "s"}
	if yaml != "" {
		d, err := Parse("s.yaml", []byte("schedule: s\nsubmit: {workflow: w, input: {day: \"${ at.date() }\"}}\n"+yaml))
		if err != nil {
			w.t.Fatal(err)
		}
		if n.Body, err = d.JSON(); err != nil {
			w.t.Fatal(err)
		}
	}
	w.append(n.Record(testNamespace, "test"))
}

// pass lets the clock show an instant, decides until nothing is left, and returns what was decided.
func (w *world) pass(at string) string {
	w.t.Helper()
	w.now = instant(w.t, at)
	return w.decide(w.now)
}

func (w *world) decide(now time.Time) string {
	w.t.Helper()
	var texts []string
	for range 1000 {
		k := w.state.Find("s")
		if k == nil {
			break
		}
		decisions := w.decider.Decide(k, now)
		if len(decisions) == 0 {
			break
		}
		for _, d := range decisions {
			switch d := d.(type) {
			case *Start:
				texts = append(texts, fmt.Sprintf("%s %s", d.Cause, d.At.Format("15:04:05")))
			case *Wait:
				texts = append(texts, "wait "+d.At.Format("15:04:05"))
			case *Skipping:
				text := fmt.Sprintf("skip %s: %s", d.At.Format("15:04:05"), d.Why)
				if d.Count > 1 {
					text = fmt.Sprintf("skip %d until %s: %s", d.Count, d.To.Format("15:04:05"), d.Why)
				}
				texts = append(texts, text)
			case *Finish:
				texts = append(texts, "finish")
			}
			w.append(w.records.Decided("s", d))
		}
	}
	return strings.Join(texts, ", ")
}

// end ends the task of an instant.
func (w *world) end(at, status string) {
	w.t.Helper()
	n := &events.Notification{Task: events.ScheduledTask("s", instant(w.t, at)), Workflow: "w", Status: status, At: w.now}
	w.apply(n.Record(testNamespace, "test", testNamespace.Schedules(), "x"))
}

// refuse refuses the submission of an instant.
func (w *world) refuse(at, reason string) {
	w.t.Helper()
	n := &events.Notification{Task: events.ScheduledTask("s", instant(w.t, at)), Workflow: "w", Status: events.StatusRefused, Reason: reason, At: w.now}
	w.apply(n.Record(testNamespace, "test", testNamespace.Schedules(), "x"))
}

func (w *world) expect(got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("decided %q, want %q", got, want)
	}
}

// TestOverlap: each kind of overlap, while the task of an earlier instant runs.
func TestOverlap(t *testing.T) {
	const start, first = "2026-11-26T10:00:30Z", "2026-11-26T10:01:00Z"
	for _, c := range []struct {
		overlap, second, third, after string
		cancelled                     bool
	}{
		{"skip", "skip 10:02:00: overlap", "skip 10:03:00: overlap", "", false},
		{"queue_one", "wait 10:02:00", "skip 10:03:00: overlap", "queued 10:02:00", false},
		{"allow", "due 10:02:00", "due 10:03:00", "", false},
		{"cancel_running", "wait 10:02:00", "wait 10:03:00", "queued 10:03:00", true},
	} {
		t.Run(c.overlap, func(t *testing.T) {
			w := newWorld(t, start, `cron: "* * * * *"`+"\noverlap: "+c.overlap)
			w.expect(w.pass(start), "")
			w.expect(w.pass(first), "due 10:01:00")
			w.end(first, events.StatusReceived)
			w.expect(w.pass("2026-11-26T10:02:10Z"), c.second)
			w.expect(w.pass("2026-11-26T10:03:05Z"), c.third)
			if run := w.state.Find("s").Running[events.ScheduledTask("s", instant(t, first))]; run == nil || run.Cancel != c.cancelled {
				t.Errorf("%+v", run)
			}
			w.end(first, string(events.StateError)) // a held task hasn't ended
			w.expect(w.decide(w.now), "")
			w.end(first, string(events.StateCancelled))
			w.expect(w.decide(w.now), c.after)
			w.same()
		})
	}
}

// same checks that the state is that of a process that reads the log now: all of it, or from any snapshot in it.
func (w *world) same() {
	w.t.Helper()
	want := w.content(w.state)
	again := NewState()
	for i := range w.log {
		again.take(&w.log[i])
	}
	if got := w.content(again); got != want {
		w.t.Errorf("read again:\n%s\nwant:\n%s", got, want)
	}
	for from := range w.log {
		w.sameFrom(from, want)
	}
}

// take applies a record of either topic.
func (s *State) take(r *events.Record) {
	if _, _, is := events.ParseNamedKey(string(r.Key)); is {
		s.ApplyDefinition(r)
	} else {
		s.Apply(r)
	}
}

// sameFrom writes a snapshot of the state before a record, while two others come, and reads the log from there.
func (w *world) sameFrom(from int, want string) {
	w.t.Helper()
	before, read := NewState(), NewState()
	for i := range w.log[:from] {
		before.take(&w.log[i])
		if _, _, is := events.ParseNamedKey(string(w.log[i].Key)); is {
			read.ApplyDefinition(&w.log[i])
		}
	}
	snapshot, err := w.records.Snapshot(before, "1", int64(from))
	if err != nil {
		w.t.Fatal(err)
	}
	between := min(from+2, len(w.log))
	log := slices.Concat(w.log[from:between], snapshot, w.log[between:])
	read.Await(*SnapshotEnd(&snapshot[len(snapshot)-1]))
	for i := range log {
		read.take(&log[i])
	}
	if got := w.content(read); got != want {
		w.t.Errorf("read from a snapshot before record %d:\n%s\nwant:\n%s", from, got, want)
	}
}

// content returns all that a state has of the topic of schedules.
func (w *world) content(s *State) string {
	w.t.Helper()
	rs, err := w.records.Snapshot(s, "", 0)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for i := range rs {
		all = append(all, fmt.Sprintf("%s %s", rs[i].Key, rs[i].Value))
	}
	slices.Sort(all)
	return strings.Join(all, "\n") + fmt.Sprint("\ntasks: ", len(s.tasks))
}

// TestLongOutage: instants that were missed for longer than catch_up are skipped in one decision, which says how many; the
// others start.
func TestLongOutage(t *testing.T) {
	w := newWorld(t, "2026-11-26T10:00:30Z", "every: 1m\ncatch_up: 3m\noverlap: allow")
	w.expect(w.pass("2026-11-26T10:01:00Z"), "due 10:01:00")
	w.expect(w.pass("2026-11-26T14:00:10Z"), "skip 236 until 13:57:00: missed, due 13:58:00, due 13:59:00, due 14:00:00")
	if v := w.state.Find("s").View(true); v.Skipped != 236 || v.Started != 4 {
		t.Errorf("%+v", v)
	}
	w.same()
}

// TestClockThatIsSet: an instant is decided once, whatever the clock shows.
func TestClockThatIsSet(t *testing.T) {
	w := newWorld(t, "2026-11-26T10:00:30Z", "every: 1m\noverlap: allow")
	w.expect(w.pass("2026-11-26T10:02:00Z"), "due 10:01:00, due 10:02:00")
	w.expect(w.pass("2026-11-26T09:00:00Z"), "") // back
	w.expect(w.pass("2026-11-26T10:02:30Z"), "")
	w.expect(w.pass("2026-11-26T10:04:30Z"), "due 10:03:00, due 10:04:00") // forward
	w.expect(w.pass("2026-11-26T10:03:30Z"), "")
	w.expect(w.pass("2026-11-26T10:05:00Z"), "due 10:05:00")
	w.same()
}

// TestDefinitionsThatChange: instants before a definition are not its own. A pause has none.
func TestDefinitionsThatChange(t *testing.T) {
	w := newWorld(t, "2026-11-26T10:00:30Z", "every: 1m\noverlap: allow")
	w.expect(w.pass("2026-11-26T10:01:00Z"), "due 10:01:00")
	w.now = instant(t, "2026-11-26T10:02:30Z")
	w.define("every: 1s\noverlap: allow")
	w.expect(w.decide(w.now), "")
	w.expect(w.pass("2026-11-26T10:02:31Z"), "due 10:02:31")
	d := *w.state.Find("s").Applied
	d.Paused = &events.By{Why: "night"}
	w.append(d.Record(testNamespace, "test"))
	w.expect(w.pass("2026-11-26T10:05:00Z"), "")
	d.Paused, d.Since = nil, time.Time{}
	w.append(d.Record(testNamespace, "test"))
	w.expect(w.decide(w.now), "")
	w.expect(w.pass("2026-11-26T10:05:01Z"), "due 10:05:01")
	w.define("")
	w.expect(w.pass("2026-11-26T10:05:02Z"), "")
}

// TestQueuedBeforeAPause: an instant that was queued before a pause, or before the schedule was deleted and applied again,
// starts no task.
func TestQueuedBeforeAPause(t *testing.T) {
	const first = "2026-11-26T10:01:00Z"
	for _, again := range []func(w *world, d events.NamedDefinition){
		func(w *world, d events.NamedDefinition) {
			d.Paused = &events.By{Why: "night"}
			w.append(d.Record(testNamespace, "test"))
			w.end(first, string(events.StateProcessed))
			w.expect(w.pass("2026-11-26T10:05:00Z"), "")
			d.Paused, d.Since = nil, time.Time{}
			w.append(d.Record(testNamespace, "test"))
		},
		func(w *world, _ events.NamedDefinition) {
			w.define("")
			w.end(first, string(events.StateProcessed))
			w.expect(w.pass("2026-11-26T10:05:00Z"), "")
			w.define("every: 1m\noverlap: queue_one")
		},
	} {
		w := newWorld(t, "2026-11-26T10:00:30Z", "every: 1m\noverlap: queue_one")
		w.expect(w.pass(first), "due 10:01:00")
		w.end(first, events.StatusReceived)
		w.expect(w.pass("2026-11-26T10:02:00Z"), "wait 10:02:00")
		again(w, *w.state.Find("s").Applied)
		w.expect(w.decide(w.now), "skip 10:02:00: missed")
		w.expect(w.pass("2026-11-26T10:06:00Z"), "due 10:06:00")
		w.same()
	}
}

// TestSubmissionThatCannotBeDecoded: an instant whose submission no scheduler can decode is skipped. Its task would never end.
func TestSubmissionThatCannotBeDecoded(t *testing.T) {
	w := newWorld(t, "2026-11-26T10:00:30Z", "every: 1m")
	d, err := Parse("s.yaml", []byte("schedule: s\nevery: 1m\nsubmit: {workflow: w, labels: {note: "+strings.Repeat("x", 300)+"}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	n := events.NamedDefinition{Kind: events.ScheduleDefinition, Name: "s"}
	if n.Body, err = d.JSON(); err != nil {
		t.Fatal(err)
	}
	w.append(n.Record(testNamespace, "test"))
	w.expect(w.pass("2026-11-26T10:01:00Z"), "skip 10:01:00: failed")
	w.expect(w.pass("2026-11-26T10:02:00Z"), "skip 10:02:00: failed")
}

// TestTriggerAndBackfill: a trigger starts a task at once, also of a paused schedule. A backfill starts the tasks of past
// instants, one after another unless they may overlap.
func TestTriggerAndBackfill(t *testing.T) {
	for overlap, want := range map[string]string{"allow": "backfilled 08:00:00, backfilled 09:00:00, finish", "skip": "backfilled 08:00:00"} {
		w := newWorld(t, "2026-11-26T10:00:30Z", "every: 1h\noverlap: "+overlap)
		d := *w.state.Find("s").Applied
		d.Paused = &events.By{}
		w.append(d.Record(testNamespace, "test"))
		for _, id := range []string{"a", "b", "a"} {
			w.append(w.records.Trigger("s", Request{ID: id, Why: "now"}))
		}
		w.expect(w.decide(w.now), "triggered 10:00:30, triggered 10:00:30")
		for task := range w.state.Find("s").Running {
			w.apply((&events.Notification{Task: task, Status: string(events.StateProcessed)}).Record(testNamespace, "test", testNamespace.Schedules(), "x"))
		}
		q := Request{ID: "c", From: instant(t, "2026-11-26T08:00:00Z"), To: instant(t, "2026-11-26T10:00:00Z")}
		if n, err := w.state.Find("s").CheckBackfill(q.From, q.To, w.now); n != 2 || err != nil {
			t.Error(n, err)
		}
		if _, err := w.state.Find("s").CheckBackfill(q.From, q.To.Add(2*time.Hour), w.now); !errors.Is(err, ErrBadRange) {
			t.Error("a backfill of the future", err)
		}
		w.append(w.records.Backfill("s", q))
		w.expect(w.decide(w.now), want)
		if overlap == "skip" {
			w.end("2026-11-26T08:00:00Z", string(events.StateProcessed))
			w.expect(w.decide(w.now), "backfilled 09:00:00")
			w.end("2026-11-26T09:00:00Z", string(events.StateUndone))
			w.expect(w.decide(w.now), "finish")
		}
		if k := w.state.Find("s"); len(k.requests) > 0 {
			t.Errorf("%+v", k.requests)
		}
		w.same()
	}
}

// TestBackfillOfAnEndedTask: the task of an instant had ended before the backfill. The instant counts as skipped. A task that
// ends before its status was received, and a task that is forgotten, count as started.
func TestBackfillOfAnEndedTask(t *testing.T) {
	w := newWorld(t, "2026-11-26T10:00:30Z", "every: 1h\noverlap: allow")
	w.append(w.records.Backfill("s", Request{ID: "c", From: instant(t, "2026-11-26T07:00:00Z"), To: instant(t, "2026-11-26T10:00:00Z")}))
	w.expect(w.decide(w.now), "backfilled 07:00:00, backfilled 08:00:00, backfilled 09:00:00, finish")
	old := &events.Notification{Task: events.ScheduledTask("s", instant(t, "2026-11-26T07:00:00Z")), Status: string(events.StateProcessed), At: instant(t, "2026-11-26T07:00:05Z")}
	w.apply(old.Record(testNamespace, "test", testNamespace.Schedules(), "x"))
	w.end("2026-11-26T08:00:00Z", string(events.StateProcessed))
	w.end("2026-11-26T09:00:00Z", events.StatusForgotten)
	v := w.state.Find("s").View(true)
	if v.Started != 2 || v.Skipped != 1 || len(v.Running) != 0 || len(v.Recent) != 3 {
		t.Fatalf("%+v", v)
	}
	if o := v.Recent[2]; o.Skipped != HadTask || o.Task != "" || o.Detail != "its task was processed before" {
		t.Errorf("%+v", o)
	}
	w.same()
}

// TestInstantsWithoutATask: a task that a scheduler refuses hasn't started. A backfill of an instant whose task exists under an
// older definition, or runs, skips the instant.
func TestInstantsWithoutATask(t *testing.T) {
	w := newWorld(t, "2026-11-26T10:00:30Z", "every: 1h\noverlap: allow")
	w.expect(w.pass("2026-11-26T11:00:00Z"), "due 11:00:00")
	w.end("2026-11-26T11:00:00Z", events.StatusReceived)
	w.append(w.records.Backfill("s", Request{ID: "c", From: instant(t, "2026-11-26T08:00:00Z"), To: instant(t, "2026-11-26T12:00:01Z")}))
	w.expect(w.decide(w.now), "backfilled 08:00:00, backfilled 09:00:00, backfilled 10:00:00, backfilled 11:00:00, finish")
	w.refuse("2026-11-26T08:00:00Z", string(events.ReasonIDConflict)+": task exists already, with another body")
	w.refuse("2026-11-26T09:00:00Z", string(events.ReasonUnknownWorkflow)+": no workflow w")
	w.end("2026-11-26T10:00:00Z", string(events.StateProcessed))
	v := w.state.Find("s").View(true)
	var got []string
	for i := range v.Recent {
		o := &v.Recent[i]
		got = append(got, fmt.Sprintf("%s %s%s: %s", o.Cause, o.Status, o.Skipped, o.Detail))
	}
	want := []string{"backfilled had_task: its task hasn't ended", "backfilled processed: ", "backfilled refused: unknown_workflow: no workflow w", "backfilled had_task: its task is of another definition", "due received: "}
	if v.Started != 2 || v.Skipped != 2 || v.Refused != 1 || len(v.Running) != 1 || !slices.Equal(got, want) {
		t.Errorf("%d started, %d skipped, %d refused: %q", v.Started, v.Skipped, v.Refused, got)
	}
	w.same()
	w.expect(w.pass("2026-11-26T12:00:00Z"), "due 12:00:00")
	w.refuse("2026-11-26T12:00:00Z", string(events.ReasonIDConflict)+": task exists already, with another body")
	if o := w.state.Find("s").View(false).Last; o.Status != events.StatusRefused || o.Skipped != "" { // its id was taken by another program
		t.Errorf("%+v", o)
	}
}

// TestOutdatedDecisions: decisions of a process that lost the partition aren't used, and of two decisions of an instant the
// first counts.
func TestOutdatedDecisions(t *testing.T) {
	w := newWorld(t, "2026-11-26T10:00:30Z", "every: 1m")
	at := instant(t, "2026-11-26T10:01:00Z")
	old := w.decider.Decide(w.state.Find("s"), at)
	w.append(w.records.Claimed(Claim{Epoch: 2, Owner: "two"}))
	w.append(w.records.Claimed(Claim{Epoch: 2, Owner: "three"}))
	w.append(w.records.Decided("s", old[0]))
	if epoch, owner := w.state.Epoch(); epoch != 2 || owner != "two" || w.state.Outdated != 1 || w.state.Find("s").Started != 0 {
		t.Errorf("%d %s, %+v", epoch, owner, w.state)
	}
	w.decider.Epoch = 2
	w.append(w.records.Decided("s", &Skipping{Epoch: 2, At: at, Count: 1, Cause: Due, Why: Overlapped}))
	w.append(w.records.Decided("s", w.decider.start(w.state.Find("s"), at, Due, "")))
	if k := w.state.Find("s"); k.Started != 0 || k.Skipped != 1 || len(k.Recent) != 1 {
		t.Errorf("%+v", k)
	}
}

// TestClaimAfterRetention: all records were deleted after several claims. A process that starts then knows none of them, and one
// that has read them uses its decisions.
func TestClaimAfterRetention(t *testing.T) {
	w := newWorld(t, "2026-11-26T10:00:30Z", "every: 1m")
	for epoch := int64(2); epoch < 8; epoch++ {
		w.append(w.records.Claimed(Claim{Epoch: epoch, Owner: "earlier"}))
	}
	const position = 10 // the offset after the deleted records
	epoch := NewState().NextEpoch(position)
	w.append(w.records.Claimed(Claim{Epoch: epoch, Owner: "new"}))
	if now, owner := w.state.Epoch(); now != epoch || owner != "new" {
		t.Errorf("epoch %d of %s, want %d", now, owner, epoch)
	}
}

// TestSubmissions: the same instant has the same submission, and an expression that fails skips it.
func TestSubmissions(t *testing.T) {
	const text = "schedule: s\ncron: 30 0 * * *\nzone: Europe/Oslo\nsubmit:\n  workflow: w\n  version: 3\n  priority: 2\n  input: {day: \"${ at.date() }\", hour: \"${ at.getHours() }\", at: \"${ at }\"}\n  labels: {of: \"${ schedule }\"}\n"
	d, err := Parse("s.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	body, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseStored(body)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	at := d.Rule().Next(instant(t, "2026-11-26T12:00:00Z"))
	a, err := d.Submission(at, "t.schedules")
	b, err2 := again.Submission(at, "t.schedules")
	const want = `{"at":"2026-11-27T00:30:00+01:00","day":"2026-11-27","hour":0}`
	if err != nil || err2 != nil || a.Digest() != b.Digest() || string(a.Input) != want || a.ID != "s@2026-11-26T23:30:00Z" || a.Labels["of"] != "s" || a.Version != 3 || a.Priority != 2 {
		t.Errorf("%+v, %v, %v: %s", a, err, err2, a.Input)
	}
	if u := testNamespace.CheckTaskReplyTo(a.ID, "t.schedules"); u != nil {
		t.Error(u)
	}
	for _, id := range []string{"order-1", "s@now", "s@2026-11-26T23:30:00.0Z", "A@2026-11-26T23:30:00Z"} {
		if testNamespace.CheckTaskReplyTo(id, "t.schedules") == nil {
			t.Errorf("%s may reply to the topic of schedules", id)
		}
	}
	w := newWorld(t, "2026-11-26T10:00:30Z", "every: 1m")
	bad, err := Parse("s.yaml", []byte("schedule: s\nevery: 1m\nsubmit: {workflow: w, input: {x: \"${ 1 / (at.getSeconds() - at.getSeconds()) }\"}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	w.state.Find("s").Definition = bad
	w.expect(w.pass("2026-11-26T10:01:00Z"), "skip 10:01:00: failed")
	if o := w.state.Find("s").View(true).Last; o == nil || !strings.Contains(o.Detail, "division by zero") {
		t.Errorf("%+v", o)
	}
}

// TestFaultsOfDefinitions: all faults are found, each with its place.
func TestFaultsOfDefinitions(t *testing.T) {
	for text, want := range map[string][]string{
		"schedule: S\nevery: 1m\nsubmit: {workflow: w}":                                    {"s.yaml:1:", "is not a name"},
		"schedule: s\nsubmit: {workflow: w}":                                               {"the schedule has no rule"},
		"schedule: s\ncron: 1 2 3\nevery: 1m\nsubmit: {workflow: w}":                       {"s.yaml:3:", "cron and every"},
		"schedule: s\ncron: 1 2 3\nzone: Oslo\noverlap: no\nsubmit: {workflow: w}":         {"s.yaml:2:", "it has 3 fields", "s.yaml:3:", "no zone is called", "s.yaml:4:", "isn't a kind of overlap"},
		"schedule: s\nevery: 1m\ncatch_up: 1s\nsubmit: {input: 1}":                         {"out of range", "no workflow is named"},
		"schedule: s\nevery: 1m\nsubmit: {workflow: w, input: \"${ input.x }\"}":           {"s.yaml:3:", "unknown name input"},
		"schedule: s\nevery: 1m\ncolour: red\nsubmit: {workflow: w, id: x}":                {"colour", "id"},
		"schedule: s\nevery: 9000h\nsubmit: {workflow: w}":                                 {"out of range"},
		"schedule: s\nevery: 1m\nzone: Local\nsubmit: {workflow: w}":                       {"no zone is called"},
		"schedule: s\nevery: 1m\nsubmit: {workflow: w, labels: {a: \"${ at.getFoo() }\"}}": {"getFoo"},
	} {
		_, err := Parse("s.yaml", []byte(text))
		if err == nil {
			t.Errorf("%s: no fault", text)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s:\n%v\nwant %q", text, err, part)
			}
		}
	}
}

// TestSchemaHasTheFields: the published schema has the fields that the parser knows.
func TestSchemaHasTheFields(t *testing.T) {
	for _, name := range slices.Concat(definitionFields, submitFields, overlaps) {
		if !strings.Contains(string(Schema), `"`+name+`"`) {
			t.Errorf("the schema lacks %s", name)
		}
	}
}
