package verify

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Report is the result of all checks.
type Report struct {
	Events, Tasks, Inputs, Requests, Deadletters, Effects, Acknowledged, Reads int

	States     map[events.TaskState]int // tasks by state
	Unreadable int                      // unusable inputs
	Pending    int                      // upper bound of the inputs fed that aren't consumed yet, since an input without an event may have been consumed
	Unchecked  int                      // consumed inputs without an event, whose dead letters may have been deleted
	// DeadlettersSince is since when all dead letters are kept, for inputs of that time; zero: since the begin, or none are.
	DeadlettersSince time.Time
	Others           int // events of tasks that aren't checked: not between Since and Until
	Overdue          int // timers of open tasks that are due
	Compared         int // digests that were compared with another

	Recoveries Recoveries
	Lateness   Lateness
	Excused    int // timers that fired late within disturbed spans

	LateReplies int           // replies written after the complete-by of their attempt
	LatestReply time.Duration // the longest time after it

	Broken int     // faults
	Faults []Fault // the first Options.Faults, those of the log first, in its order
}

// String formats the report on a few lines, with the faults at the end.
func (r *Report) String() string {
	s := fmt.Sprintf("%d tasks %v, %d events, %d inputs (%d pending, %d unreadable), %d requests, %d dead letters, %d effects, %d acknowledged, "+
		"%d reads, %d digests compared; recoveries: %d accepted, %d rejected; %d timers late by p50 %s, p99 %s, max %s (%d excused, %d due); %d late replies; %d faults",
		r.Tasks, r.States, r.Events, r.Inputs, r.Pending, r.Unreadable, r.Requests, r.Deadletters, r.Effects, r.Acknowledged,
		r.Reads, r.Compared, r.Recoveries.Accepted, r.Recoveries.Rejected, r.Lateness.Timers, r.Lateness.P50, r.Lateness.P99, r.Lateness.Max,
		r.Excused, r.Overdue, r.LateReplies, r.Broken)
	for _, f := range r.Faults {
		s += "\n" + f.String()
	}
	return s
}

// Recoveries counts the outcomes of recoveries (P4).
type Recoveries struct {
	Accepted int // timers that a recovery ended, one each
	Rejected int // recoveries fed that led to no event
}

// Lateness is how long after their due time timers fired (P16).
type Lateness struct {
	Timers        int
	P50, P99, Max time.Duration
}

// Finish completes the checks as of now, by the brokers' clock. It changes nothing, so it can be called again.
func (c *Checker) Finish(now time.Time) *Report {
	r := &Report{Events: c.events, Tasks: len(c.order), Inputs: c.inputs, Requests: c.asked, Deadletters: len(c.dead),
		Effects: c.ledger.Lines, Acknowledged: len(c.seen.acked), Reads: c.seen.readers, States: map[events.TaskState]int{},
		Unreadable: c.unreadable, Others: c.others, Compared: c.seen.pairs, Lateness: c.timing.lateness.report()}
	fs := &faults{slices.Clip(c.faults.list), c.faults.all, c.o.Faults}
	f := &finish{c: c, now: now, report: r, faults: fs, deadlettersSince: c.deadlettersSince(), late: c.late, children: map[*task][]offspring{}}
	if since := f.deadlettersSince; since > math.MinInt64 && since < math.MaxInt64 {
		r.DeadlettersSince = time.UnixMilli(since)
	}
	f.findChildren()
	f.checkAcknowledged()
	for _, t := range c.order {
		if t.open != nil && t.open.state == nil {
			r.Tasks-- // it had no usable event
			continue
		}
		r.States[t.state]++
		f.checkOpenTask(t)
		f.checkEffects(t)
	}
	f.checkDrained()
	f.reportCutDecisions()
	f.checkAlerts()
	f.checkInboxes()
	f.checkRequests()
	f.checkUnknownEffects()
	f.checkSchedules()
	f.checkChildren()
	r.LateReplies, r.LatestReply = f.late.count, f.late.most
	r.Recoveries.Accepted = c.timing.accepted
	r.Excused = c.timing.finish(c.o.LatestBy, fs)
	if n := c.timing.lateMore; n > 0 {
		fs.add(Fault{Promise: "P16", What: fmt.Sprintf("%d more timers fired late", n)})
	}
	r.Broken, r.Faults = fs.all, fs.list
	return r
}

// finish is one run of Finish.
type finish struct {
	c      *Checker
	now    time.Time
	report *Report
	faults *faults
	late   lateReplies
	// deadlettersSince is since when, in ms, an input without a dead letter can be checked.
	deadlettersSince int64
	// children are the tasks that attempts of a task started, in the order of the log.
	children map[*task][]offspring
}

// checkAcknowledged checks that acknowledged submissions exist (P12).
func (f *finish) checkAcknowledged() {
	waiting := f.unusedSubmissions()
	for _, a := range f.c.seen.acked {
		if f.c.tasks[a.task] == nil && !waiting[a.task] {
			f.faults.add(Fault{Promise: "P12", Task: a.task, What: "acknowledged at " + a.at.UTC().Format(events.TimeLayout) + ", and not in the log"})
		}
	}
}

// unusedSubmissions returns the tasks whose submissions weren't consumed yet or became dead letters.
func (f *finish) unusedSubmissions() map[string]bool {
	tasks := map[string]bool{}
	for key, in := range f.c.inboxes {
		if key.inbox != events.Tasks {
			continue
		}
		used := f.used(key)
		for offset, x := range in.inputs.all() {
			if offset >= used || f.c.dead[place{key, offset}].why != "" {
				tasks[x.task] = true
			}
		}
	}
	return tasks
}

// checkOpenTask checks that an open task can advance within its time (P1), and within the bound once all is quiet
// (P14).
func (f *finish) checkOpenTask(t *task) {
	if t.broken {
		return
	}
	if bound, since, ok := f.drainBy(t); ok && !f.waitsForChild(t) {
		switch by := since.Add(bound); {
		case !t.endedOrHeld() && f.now.After(by):
			f.addTaskFault(t, faultf("P14", "%s %s after it was asked for and the faults were off; at most %s", t.state, f.now.Sub(since), bound))
			return
		case t.endedOrHeld() && t.statusAt > by.UnixMilli():
			f.addTaskFault(t, faultf("P14", "%s %s after it was asked for and the faults were off; at most %s", t.state, time.UnixMilli(t.statusAt).Sub(since), bound))
		}
	}
	if t.endedOrHeld() {
		return
	}
	armed := t.open.timers.Armed
	if len(armed) == 0 && !t.withdraws() {
		f.addTaskFault(t, faultf("P1", "%s, and no timer is armed: nothing will ever happen", t.state))
	}
	for _, a := range armed {
		late := f.now.Sub(a.Timer.Due)
		if late <= 0 {
			continue
		}
		f.report.Overdue++
		if bound := f.c.o.RecoverWithin; bound > 0 && late > bound {
			f.addTaskFault(t, faultf("P1", "%s, and the timer of event %d has been due for %s; at most %s", t.state, a.Timer.Seq, late, bound))
			return
		}
	}
}

// drainBy returns the bound within which a task must be ended or held, and the instant from which it counts.
func (f *finish) drainBy(t *task) (bound time.Duration, since time.Time, ok bool) {
	since = f.c.seen.quiet
	if f.c.o.DrainWithin == 0 || since.IsZero() {
		return 0, since, false
	}
	if asked := time.UnixMilli(max(t.askedAt, f.childrenEnded(t))); asked.After(since) {
		since = asked
	}
	return f.c.o.DrainWithin, since, true
}

// addTaskFault adds a fault of a task that only the end shows.
func (f *finish) addTaskFault(t *task, fault *Fault) {
	f.faults.add(Fault{Promise: fault.Promise, Task: t.id, Partition: t.partition, What: fault.What})
}

// checkDrained checks that the lag reaches 0 after all faults are off (P14).
func (f *finish) checkDrained() {
	s, bound := &f.c.seen, f.c.o.DrainWithin
	if bound == 0 || s.quiet.IsZero() || s.lagAt.IsZero() {
		return
	}
	by, drained := s.quiet.Add(bound), s.drained()
	switch {
	case drained.IsZero() && f.now.After(by):
		f.faults.add(Fault{Promise: "P14", What: fmt.Sprintf("a lag of %d records %s after the faults were off; at most %s",
			s.lag, s.lagAt.Sub(s.quiet), bound)})
	case drained.After(by):
		f.faults.add(Fault{Promise: "P14", What: fmt.Sprintf("the lag was 0 only %s after the faults were off; at most %s", drained.Sub(s.quiet), bound)})
	}
}

// checkAlerts checks that each hold has its alert (P1).
func (f *finish) checkAlerts() {
	if !f.c.o.Alerts {
		return
	}
	for _, h := range f.c.holds {
		if !f.c.alerted[h.alertID()] {
			f.faults.add(Fault{"P1", h.task.id, topicEvents, h.task.partition, h.offset, "held, and no alert tells of it"})
		}
	}
}

// checkRequests checks that requests and attempts come in pairs (P10).
func (f *finish) checkRequests() {
	for _, id := range slices.Sorted(maps.Keys(f.c.requests)) {
		x := f.c.requests[id]
		task, _, _ := events.ParseRequestID(id)
		if t := f.c.tasks[task]; t == nil || !t.anyBroken() {
			f.faults.add(Fault{"P10", task, x.topic, x.partition, x.offset, "the request " + id + " is of no attempt in the log"})
		}
	}
	if !f.c.o.Requests {
		return
	}
	for _, t := range f.c.order {
		for i := range t.attempts {
			if a := &t.attempts[i]; !a.asked && !t.broken {
				f.addTaskFault(t, faultf("P10", "attempt %d of step %q (%s) has no request", a.number, t.plan.Steps[a.step].ID, kindsOfRun[a.run()]))
				break
			}
		}
	}
}

// checkEffects compares a task with the ledger (P6, P7). For a step that an operator released as undone, the
// operator's statement counts and not the ledger: operators release steps whose undo isn't possible.
func (f *finish) checkEffects(t *task) {
	if !f.c.o.Ledger || t.broken {
		return
	}
	for i := range t.steps {
		s, p := &t.steps[i], &t.plan.Steps[i]
		if !p.StepKind.CallsAgent() {
			continue
		}
		for g := 0; g <= int(s.generation); g++ {
			x := stepOutcome{step: p.ID, key: events.IdempotencyKey(f.c.o.Namespace, t.name, p.ID, events.Do, g),
				completed: s.flags.has(completed) && g == int(s.generation),
				caught:    s.flags.has(caught) && s.flags.has(unknown) && p.Undo != nil, back: t.mustBeUndone() && p.Undo != nil,
				byHand: s.flags.has(handUndone), spared: !s.flags.has(undoAsked | handUndone)}
			if fault := f.c.ledger.check(x); fault != nil {
				f.addTaskFault(t, fault)
			}
		}
	}
}

// checkUnknownEffects checks that each effect happens once and belongs to an attempt in the log, or to a step that
// an operator settled by hand and released (P7).
func (f *finish) checkUnknownEffects() {
	if !f.c.o.Ledger {
		return
	}
	for _, k := range f.c.ledger.order {
		x := f.c.ledger.keys[k]
		if x.happened > 1 {
			f.faults.add(Fault{Promise: "P7", What: fmt.Sprintf("%d effects under the key %s", x.happened, k)})
		}
		task, ref, ok := f.c.parseKey(k)
		if t := f.c.taskOfKey(task); ok && x.happened > 0 && (t == nil || !t.broken && !t.wasRequested(ref) && !t.wasReleased(ref)) {
			f.faults.add(Fault{Promise: "P7", Task: task, What: "an effect under the key " + k + ", and no attempt in the log"})
		}
	}
}

// parseKey returns the run of an idempotency key.
func (c *Checker) parseKey(key string) (task string, ref events.RequestRef, ok bool) {
	own := string(c.o.Namespace)
	if len(key) < len(own) || key[:len(own)] != own {
		return "", ref, false
	}
	// A key has the form of a request id, with the generation in place of the attempt.
	task, ref, err := events.ParseRequestID(key[len(own):])
	return task, ref, err == nil
}

// wasRequested reports whether a request of the run was sent.
func (t *task) wasRequested(ref events.RequestRef) bool {
	i, ok := t.stepIndex(ref.Step)
	return ok && slices.ContainsFunc(t.attempts, func(a attempt) bool {
		return int(a.step) == i && a.run() == runNumber(ref.Kind)
	})
}

// wasReleased reports whether an operator released the run.
func (t *task) wasReleased(ref events.RequestRef) bool {
	i, ok := t.stepIndex(ref.Step)
	return ok && ref.Kind == events.Do && t.steps[i].flags.has(handSettled)
}
