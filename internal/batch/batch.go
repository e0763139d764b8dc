package batch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

const (
	// TasksMax bounds the tasks of a batch.
	TasksMax = 100_000
	// InFlightMax bounds the commands that are sent and not answered.
	InFlightMax = 32
	// SampleMax bounds the tasks whose state is read, after the canary.
	SampleMax = 16
	// CanaryMax bounds the canary.
	CanaryMax = 1000
	// catchUp bounds the time whose commands are made up for after a pause.
	catchUp = 100 * time.Millisecond
	// ReadInterval is the pause between two reads of a task's state.
	ReadInterval = time.Second
	// RetryPause is the pause of all commands after one wasn't answered.
	RetryPause = 5 * time.Second
)

// Plan says how the commands are sent.
type Plan struct {
	// Rate bounds the commands in a second; 0: no bound.
	Rate float64
	// Canary is the number of tasks whose fate is awaited before the others get the command; 0: none.
	Canary int
	// CanaryWithin bounds the wait for the canary, from the last answer to it.
	CanaryWithin time.Duration
}

// Check returns what is wrong with a plan.
func (p *Plan) Check() error {
	switch {
	case p.Rate < 0 || math.IsNaN(p.Rate) || math.IsInf(p.Rate, 0):
		return fmt.Errorf("rate %v: must be a number of commands per second; 0: no limit", p.Rate)
	case p.Canary < 0 || p.Canary > CanaryMax:
		return fmt.Errorf("canary %d: must be 0 to %d tasks", p.Canary, CanaryMax)
	case p.Canary > 0 && p.CanaryWithin <= 0:
		return fmt.Errorf("canary within %s: must be a positive duration", p.CanaryWithin)
	}
	return nil
}

// Status is what became of a task in a batch.
type Status string

// The statuses.
const (
	Waiting    Status = "waiting"    // it wasn't sent
	Sent       Status = "sent"       // it isn't answered yet
	Accepted   Status = "accepted"   // by a scheduler
	Refused    Status = "refused"    // by a scheduler
	Unanswered Status = "unanswered" // the command may have an effect; it is sent again, unless the batch was stopped
	Passed     Status = "passed"     // accepted, and the fault did not recur
	Recurred   Status = "recurred"   // accepted, and the task is held again
)

// Result is what became of a task.
type Result struct {
	Task      string           `json:"task" jsonschema:"The task's id."`
	RequestID string           `json:"request_id" jsonschema:"The request id of its command."`
	Status    Status           `json:"status" jsonschema:"The result of the task."`
	State     events.TaskState `json:"state,omitempty" jsonschema:"The state of the task, as last seen. Absent: it wasn't seen."`
	Why       string           `json:"why,omitempty" jsonschema:"Why it was refused, isn't answered, or is held again."`
}

// Statuses are all statuses, from the first to the last that a task can have.
var Statuses = []Status{Waiting, Sent, Unanswered, Accepted, Refused, Passed, Recurred}

// after reports whether a status comes after another one. A result never goes back.
func (s Status) after(other Status) bool {
	return slices.Index(Statuses, s) > slices.Index(Statuses, other)
}

// due reports whether the command is to be sent, for the first time or again.
func (s Status) due() bool { return s == Waiting || s == Unanswered }

// Batch is a batch that runs. It is for one goroutine.
type Batch struct {
	id       string
	command  events.Control
	plan     Plan
	targets  []Target
	results  []Result
	index    map[string]int // of a task
	next     int            // the first target that may not have been sent
	inFlight int
	nextSend time.Time         // of the next command, by the rate
	canaryBy time.Time         // the canary's wait ends; zero: it has not been answered
	nextRead map[int]time.Time // of the canary and the sample: when the state is read next
	stopped  string
	timedOut bool
	trouble  string         // why the last command wasn't answered; empty: it was
	unread   map[int]string // of tasks whose state is read: why the last read failed
}

// New returns a batch. The command has neither a task nor a request id. earlier are results of the same batch, which
// was interrupted.
func New(id string, command events.Control, plan Plan, targets []Target, earlier []Result) *Batch {
	b := &Batch{id: id, command: command, plan: plan, targets: targets, index: map[string]int{}, nextRead: map[int]time.Time{}, unread: map[int]string{}}
	b.plan.Canary = min(plan.Canary, len(targets))
	if len(targets) == 1 || command.DryRun {
		b.plan.Canary = 0 // there are no others, or nothing comes of it
	}
	for i, t := range targets {
		b.index[t.Task] = i
		b.results = append(b.results, Result{Task: t.Task, RequestID: RequestID(id, t.Task), Status: Waiting})
	}
	for _, r := range earlier {
		if i, ok := b.index[r.Task]; ok && r.Status != Sent && (r.RequestID == "" || b.results[i].RequestID == r.RequestID) {
			r.RequestID = b.results[i].RequestID
			b.results[i] = r
			if r.Status == Accepted {
				b.sample(time.Time{}, i)
			}
			if r.Status == Recurred { // it had stopped, and was interrupted before it could say so
				b.stop(recurred(r.Task, r.Why))
			}
		}
	}
	return b
}

// Step is what is to be done now.
type Step struct {
	Send  []events.Control // commands to send now
	Look  []string         // tasks whose state is to be read now, as of the end of the log
	Until time.Time        // when Next is to be called again if nothing is reported before; zero: only then
	Ended bool             // nothing is left
}

// Next returns what is to be done at an instant.
func (b *Batch) Next(now time.Time) (do Step) {
	canary := b.awaitCanary(now)
	for b.stopped == "" && b.inFlight < InFlightMax {
		i, ok := b.nextWaiting(canary)
		if !ok {
			break
		}
		if now.Before(b.nextSend) {
			do.Until = b.nextSend
			break
		}
		b.pace(now)
		b.results[i].Status = Sent
		b.inFlight++
		do.Send = append(do.Send, b.commandTo(i))
	}
	b.chooseReads(now, canary, &do)
	_, more := b.nextWaiting(canary)
	do.Ended = b.inFlight == 0 && len(do.Send) == 0 && (b.stopped != "" || !canary && !more)
	return do
}

// nextWaiting returns the next target to send to; of the canary only, if it is still awaited.
func (b *Batch) nextWaiting(canary bool) (int, bool) {
	for ; b.next < len(b.targets); b.next++ {
		if canary && b.next >= b.plan.Canary {
			return 0, false
		}
		if b.results[b.next].Status.due() {
			return b.next, true
		}
	}
	return 0, false
}

// pace accounts for a command that is sent now.
func (b *Batch) pace(now time.Time) {
	if b.plan.Rate == 0 {
		return
	}
	if late := now.Add(-catchUp); b.nextSend.Before(late) {
		b.nextSend = late
	}
	b.nextSend = b.nextSend.Add(time.Duration(float64(time.Second) / b.plan.Rate))
}

// awaitCanary reports whether the canary hasn't passed yet. It stops the batch if the wait is over.
func (b *Batch) awaitCanary(now time.Time) bool {
	open, unanswered, passed := b.countCanary()
	for migrates := b.command.Command == events.Migrate; migrates && open+unanswered+passed == 0 && b.stopped == ""; {
		if b.plan.Canary == len(b.targets) {
			return false
		}
		// Tasks that don't fit the version say nothing about the others.
		b.plan.Canary, b.canaryBy = min(2*b.plan.Canary, len(b.targets)), time.Time{}
		if open, unanswered, passed = b.countCanary(); b.plan.Canary == 0 {
			return false
		}
	}
	if open+unanswered == 0 {
		if passed == 0 && b.plan.Canary > 0 {
			b.stop("no canary passed: " + cmp.Or(b.results[0].Why, string(b.results[0].Status)))
		}
		return false
	}
	if unanswered == 0 && b.canaryBy.IsZero() {
		b.canaryBy = now.Add(b.plan.CanaryWithin)
	}
	if unanswered == 0 && b.stopped == "" && !now.Before(b.canaryBy) {
		b.stopped, b.timedOut = fmt.Sprintf("%d of %d canaries haven't passed within %s", open, b.plan.Canary, b.plan.CanaryWithin), true
		if why := b.unreadBelow(b.plan.Canary); why != "" {
			b.stopped += ": " + why
		}
	}
	return true
}

func (b *Batch) countCanary() (open, unanswered, passed int) {
	for i := range b.plan.Canary {
		switch status := b.results[i].Status; {
		case status == Sent || status.due():
			unanswered++
		case status == Accepted:
			open++
		case status == Passed:
			passed++
		}
	}
	return open, unanswered, passed
}

// chooseReads chooses the tasks whose state is read: the canary, then a sample of the accepted tasks.
func (b *Batch) chooseReads(now time.Time, canary bool, do *Step) {
	if b.stopped != "" {
		return
	}
	wake := func(at time.Time) {
		if do.Until.IsZero() || at.Before(do.Until) {
			do.Until = at
		}
	}
	if canary && !b.canaryBy.IsZero() {
		wake(b.canaryBy)
	}
	for i, at := range b.nextRead {
		if now.Before(at) {
			wake(at)
			continue
		}
		b.nextRead[i] = now.Add(ReadInterval)
		do.Look = append(do.Look, b.targets[i].Task)
	}
	slices.Sort(do.Look)
}

// Answered reports the answer to a command, or, with a nil answer, that there was none and why. A command that wasn't
// answered is sent again: a repeated request id has no second effect.
func (b *Batch) Answered(now time.Time, task string, a *events.Answer, why string) {
	i, ok := b.index[task]
	if !ok || b.results[i].Status != Sent {
		return
	}
	b.inFlight--
	r := &b.results[i]
	switch {
	case a == nil:
		r.Status, r.Why = Unanswered, why
		b.trouble = fmt.Sprintf("the command to %s wasn't answered: %s; it is sent again", task, why)
		b.next = min(b.next, i)
		if later := now.Add(RetryPause); b.nextSend.Before(later) {
			b.nextSend = later
		}
	case !a.Accepted:
		r.Status, r.State, r.Why = Refused, a.State, a.Reason
		b.trouble = ""
	default:
		r.Status, r.State, r.Why = Accepted, a.State, ""
		b.trouble = ""
		b.sample(now, i)
	}
}

// Trouble returns what keeps the batch from advancing, or from seeing whether the fault recurs: the last command wasn't
// answered, or the state of a task can't be read. Empty: nothing.
func (b *Batch) Trouble() string {
	why := b.unreadBelow(len(b.targets))
	if b.trouble != "" || why == "" || b.stopped != "" {
		return b.trouble
	}
	return why + "; it is read again"
}

// unreadBelow says which of the first n tasks can't be read, and why: the first of them. Empty: none.
func (b *Batch) unreadBelow(n int) string {
	first := n
	for i := range b.unread {
		first = min(first, i)
	}
	if first == n {
		return ""
	}
	return fmt.Sprintf("the state of %s can't be read: %s", b.targets[first].Task, b.unread[first])
}

// sample has the state of a task read, if it is a canary or the sample has room.
func (b *Batch) sample(now time.Time, i int) {
	if b.command.DryRun {
		return // nothing comes of it
	}
	if i < b.plan.Canary || len(b.nextRead) < SampleMax {
		b.nextRead[i] = now
	}
}

// ObservationFailed reports that the state of a task couldn't be read, and why. It is read again.
func (b *Batch) ObservationFailed(task, why string) {
	if i, ok := b.index[task]; ok && b.results[i].Status == Accepted {
		b.unread[i] = why
	}
}

// Observed reports the state of a task, as of an instant after its command was accepted.
func (b *Batch) Observed(task string, v *events.TaskView) {
	i, ok := b.index[task]
	if !ok || b.results[i].Status != Accepted {
		return
	}
	delete(b.unread, i)
	r := &b.results[i]
	r.State = v.State
	fate, why := judge(&b.command, &b.targets[i], v)
	if fate == Accepted {
		return // not known yet
	}
	r.Status, r.Why = fate, why
	delete(b.nextRead, i)
	if fate == Recurred {
		b.stop(recurred(task, why))
	}
}

func recurred(task, why string) string {
	return fmt.Sprintf("the fault recurred: %s is held again (%s)", task, why)
}

// stop ends the batch. The first reason counts.
func (b *Batch) stop(why string) { b.stopped = cmp.Or(b.stopped, why) }

// Stop ends the batch from outside: an operator's interrupt.
func (b *Batch) Stop(why string) { b.stop(why) }

// Stopped returns why the batch ended early; empty: it didn't. timedOut reports that the canary took too long.
func (b *Batch) Stopped() (why string, timedOut bool) { return b.stopped, b.timedOut }

// Result returns what became of a task of the batch.
func (b *Batch) Result(task string) Result { return b.results[b.index[task]] }

func (b *Batch) commandTo(i int) events.Control {
	x := b.command
	x.Task, x.RequestID = b.targets[i].Task, b.results[i].RequestID
	return x
}

// judge returns what came of an accepted command: Passed, Recurred or Accepted, which is not known yet.
func judge(x *events.Control, before *Target, v *events.TaskView) (fate Status, why string) {
	switch {
	case x.Command == events.Migrate && (v.State != events.StateError || before.State == events.StateError):
		return Passed, "" // it goes on, or waits for its resubmit
	case v.State == events.StateError:
		if v.Error != nil {
			why = v.Error.Code
		}
		return Recurred, cmp.Or(why, "held")
	case v.State.Terminal():
		return Passed, ""
	case x.Command != events.Resubmit:
		return Accepted, ""
	}
	for i := range v.Steps {
		if s := &v.Steps[i]; s.ID == before.Step && s.Undo == nil && (s.State == events.StepCompleted || s.State == events.StepSkipped) {
			return Passed, "" // the step that was held is done
		}
	}
	return Accepted, ""
}
