package projections_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
)

// history makes valid random histories of one partition. It proposes random facts and keeps those that the fold
// accepts.
type history struct {
	rnd    *rand.Rand
	at     time.Time
	tasks  map[string]*events.Task // the model: the plain fold
	ids    []string                // of open tasks
	place  map[string]int          // index in ids
	ended  []string                // processed tasks, which an operator may undo
	state  events.PartitionState
	offset int64
	inbox  int64
	made   int
	input  int              // bytes of a task's input
	forget bool             // forget ids of ended tasks, and use them again
	again  int              // ids that were used again
	from   map[string]int64 // the offset of the first event of the last task with such an id
	items  bool             // some tasks are those of items
	vary   bool             // vary workflows, labels and priorities, and include operators' commands and unavailable agents
}

const testPartition = 2

// seeds returns the number of random histories to try, of n: see oneIn. Plain go test tries a sixteenth.
func seeds(t testing.TB, n uint64) uint64 {
	t.Helper()
	few := uint64(suite.Of(t, 16, 1)) * oneIn
	return (n + few - 1) / few
}

var testPlan = events.NewPlan(events.OnErrorUndo, 30*time.Minute, []events.PlanStep{
	{ID: "reserve", Agent: "inventory", Operation: "reserve", Attempts: testAttempts, Undo: &events.PlanUndo{Agent: "inventory", Operation: "release", Attempts: testAttempts}},
	{ID: "charge", Needs: []int{0}, Agent: "payments", Operation: "charge", Attempts: testAttempts, Undo: &events.PlanUndo{Agent: "payments", Operation: "refund", Attempts: testAttempts}},
	{ID: "ship", Needs: []int{1}, Agent: "shipping", Operation: "create", Attempts: testAttempts},
})

var testAttempts = events.Attempts{CompleteWithin: 10 * time.Second, MaxAttempts: 5, Backoff: 200 * time.Millisecond, Factor: 2, Max: 30 * time.Second, CoolDown: 5 * time.Minute}

func newHistory(seed uint64) *history {
	return &history{
		rnd: rand.New(rand.NewPCG(seed, 0)), at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		tasks: map[string]*events.Task{}, place: map[string]int{}, from: map[string]int64{}, input: 40,
	}
}

// next makes the next record.
func (h *history) next() events.Record {
	h.at = h.at.Add(time.Duration(h.rnd.IntN(50)) * time.Millisecond)
	if h.state.Epoch == 0 || h.rnd.IntN(200) == 0 {
		e := &events.Event{Seq: h.state.Epoch + 1, Epoch: h.state.Epoch + 1, Fact: &events.PartitionClaimed{Owner: fmt.Sprintf("scheduler-%d", h.rnd.IntN(3))}}
		return h.record(e)
	}
	if h.forget && h.rnd.IntN(60) == 0 {
		if r, ok := h.forgets(); ok {
			return r
		}
	}
	if len(h.ids) == 0 || len(h.ids) < 200 && h.rnd.IntN(8) == 0 {
		return h.submit()
	}
	if len(h.ended) > 0 && h.rnd.IntN(30) == 0 {
		return h.reopen()
	}
	for {
		id := h.ids[h.rnd.IntN(len(h.ids))]
		t := h.tasks[id]
		e := h.proposal(t)
		e.Task, e.Seq, e.Prev, e.Epoch = id, t.Seq+1, t.Prev, h.state.Epoch
		if _, err := events.Evolve(t.Clone(), e, ""); err == nil {
			return h.record(e)
		}
	}
}

// reopen undoes a processed task.
func (h *history) reopen() events.Record {
	i := h.rnd.IntN(len(h.ended))
	t := h.tasks[h.ended[i]]
	if t.State != events.StateProcessed || t.Forgotten(h.state.Forgot) {
		h.ended = slices.Delete(h.ended, i, i+1)
		return h.submit()
	}
	h.ended[i] = h.ended[len(h.ended)-1]
	h.ended = h.ended[:len(h.ended)-1]
	return h.record(&events.Event{Task: t.ID, Seq: t.Seq + 1, Prev: t.Prev, Epoch: h.state.Epoch, Fact: &events.TaskUndoing{
		By: events.By{Who: "me", RequestID: fmt.Sprint(h.inbox)}, Ending: events.StateUndone, Error: &events.Error{Code: events.CodeUndoRequested}, Processed: t.Encode()}})
}

func (h *history) submit() events.Record {
	h.made++
	id := fmt.Sprintf("order-%d/%d", h.rnd.IntN(10), h.made)
	plan := testPlan
	if h.forget && h.rnd.IntN(4) > 0 {
		plan = forgettingPlan
	}
	if used := ""; h.forget && h.rnd.IntN(3) == 0 {
		if used = h.forgottenID(); used != "" {
			id = used
			h.again++
		}
	}
	f := &events.TaskReceived{Workflow: "order", Version: 1, Digest: "d", Plan: plan, Input: []byte(`{"items":"` + strings.Repeat("x", h.input) + `"}`)}
	if h.rnd.IntN(3) == 0 {
		f.Labels = map[string]string{"shop": "a\"b", "käse": "x"}
	}
	if n := h.made; h.items && h.rnd.IntN(5) == 0 {
		f.Parent = &events.Parent{Task: "parent", Step: "reserve", Attempt: 1, Token: "t", Depth: 1, Item: &n, StepAlone: true, KnownUntil: events.Millis(h.at)}
	}
	if h.vary {
		f.Workflow, f.Version, f.Priority = []string{"order", "order/2", "or\x00der"}[h.rnd.IntN(3)], 1+h.rnd.IntN(3), h.rnd.IntN(3)
		f.Labels = map[string]string{}
		for range h.rnd.IntN(3) {
			f.Labels[[]string{"shop", "shop\x00", "region", "region\x01"}[h.rnd.IntN(4)]] = []string{"", "a", "\x00a", "b"}[h.rnd.IntN(4)]
		}
	}
	return h.record(&events.Event{Task: id, Seq: 1, Epoch: h.state.Epoch, Fact: f})
}

// record finishes an event, folds it into the model and makes its record.
func (h *history) record(e *events.Event) events.Record {
	e.At = events.Millis(h.at)
	e.Cause = events.Cause{Inbox: events.Inbox(h.rnd.IntN(int(events.Inboxes))), Partition: testPartition, Offset: h.inbox}
	h.inbox++
	h.promise(e)
	h.setForgetAt(e)
	value := e.Value()
	r := e.Record(events.DefaultNamespace, "test", testPartition, value)
	r.Offset = h.offset
	h.offset += 1 + int64(h.rnd.IntN(5)/4) // sometimes skip an offset, as for a transaction marker
	if err := h.state.Evolve(e); err != nil {
		panic(err)
	}
	if e.Task == "" {
		return r
	}
	if e.Seq == 1 && h.tasks[e.Task] != nil {
		h.from[e.Task] = r.Offset
	}
	t, err := events.Evolve(h.tasks[e.Task].Clone(), e, events.Hash(e.Fact.Type(), value))
	if err != nil {
		panic(err)
	}
	h.tasks[e.Task] = t
	i, listed := h.place[e.Task]
	switch {
	case t.Open() && !listed:
		h.place[e.Task] = len(h.ids)
		h.ids = append(h.ids, e.Task)
	case !t.Open() && listed:
		last := h.ids[len(h.ids)-1]
		h.ids[i], h.place[last] = last, i
		h.ids = h.ids[:len(h.ids)-1]
		delete(h.place, e.Task)
		running := func(s *events.Step) bool { return s.State == events.StepRunning }
		if t.State == events.StateProcessed && (t.Plan == testPlan || t.Plan == forgettingPlan) && !slices.ContainsFunc(t.Steps, running) {
			h.ended = append(h.ended, e.Task)
		}
	}
	return r
}

// promise gives an event that arms a timer the policy that a scheduler would write.
func (h *history) promise(e *events.Event) {
	if e.Policy == nil {
		return
	}
	t, err := events.Evolve(h.tasks[e.Task].Clone(), e, "")
	if err != nil {
		panic(err)
	}
	slot, _ := e.Slot()
	switch i, ofStep := t.Plan.Step(slot.Step); {
	case ofStep:
		e.Policy = t.Policy(i, slot.Kind, e.Policy.Timer)
	case t.State == events.StateProcessing:
		e.Policy = t.TaskPolicy(e.Due)
	default: // the undo continues
		e.Due, e.Policy = time.Time{}, nil
	}
}

// proposal returns an event with a random fact about a task, which may be impossible.
func (h *history) proposal(t *events.Task) *events.Event {
	due := func(d time.Duration, p events.TimerKind, f events.Fact) *events.Event {
		return &events.Event{Due: events.Millis(h.at.Add(d)), Fact: f, Policy: &events.Policy{Timer: p, Attempts: testAttempts, OnError: events.OnErrorUndo}}
	}
	plain := func(f events.Fact) *events.Event { return &events.Event{Fact: f} }
	i := h.rnd.IntN(len(t.Plan.Steps))
	step, kind, attempt := t.Plan.Steps[i].ID, events.Do, t.Steps[i].Attempt
	if t.State == events.StateUndoing {
		kind, attempt = events.Undo, 0
		if u := t.Steps[i].Undo; u != nil {
			attempt = u.Attempt
		}
	}
	broken := &events.Error{Code: "out_of_stock", Message: fmt.Sprintf("none left of %d", h.inbox), Details: []byte(`{"sku":"x"}`)}
	if h.vary && h.rnd.IntN(4) == 0 {
		f, timer, within := h.seldom(t, i)
		if timer == "" {
			return plain(f)
		}
		return due(within, timer, f)
	}
	switch h.rnd.IntN(24) {
	case 0, 1:
		return due(30*time.Minute, events.TimerTask, &events.TaskStarted{})
	case 2, 3, 4, 5, 6:
		return due(10*time.Second, events.TimerAttempt, &events.AttemptStarted{Kind: kind, Step: step, Attempt: attempt + 1, Agent: step[:1], Operation: "o", Key: "k", Input: []byte(`{"n":1}`)})
	case 7, 8, 9, 10, 11:
		return plain(&events.AttemptCompleted{Kind: kind, Step: step, Attempt: attempt, Output: []byte(`{"ok":true}`)})
	case 12:
		return due(0, events.TimerFailed, &events.AttemptFailed{Kind: kind, Step: step, Attempt: attempt, Error: broken, Effect: events.EffectUnknown})
	case 13:
		return plain(&events.AttemptRejected{Kind: kind, Step: step, Attempt: attempt, Error: broken})
	case 14:
		return due(0, events.TimerFailed, &events.AttemptExpired{Kind: kind, Step: step, Attempt: attempt})
	case 15:
		return due(time.Second, events.TimerWaiting, &events.AttemptWaiting{Kind: kind, Step: step, Attempt: attempt})
	case 16:
		return plain(&events.RunErrored{Kind: kind, Step: step, Error: broken})
	case 17:
		return plain(&events.RunSkipped{Step: step})
	case 18:
		return plain(&events.RunReleased{Step: step, As: events.StepCompleted, Output: []byte(`{"by":"hand"}`), By: events.By{Who: "me", RequestID: fmt.Sprint(h.inbox)}})
	case 19:
		return plain(&events.TaskUndoing{Ending: events.StateUndone, Error: broken})
	case 20:
		return plain(&events.TaskUndone{})
	case 21:
		broken.Code = []string{"out_of_stock", "lost"}[h.inbox%2]
		if h.inbox%5 > 0 {
			broken.Step = step
		}
		return plain(&events.TaskHeld{Error: broken})
	case 22:
		return due(30*time.Minute, events.TimerTask, &events.TaskResumed{By: events.By{Who: "me", RequestID: fmt.Sprint(h.inbox)}})
	default:
		return plain(&events.TaskProcessed{Output: []byte(`{"tracking":"t"}`)})
	}
}

// seldom returns a rare fact, by an operator or because an agent is unavailable, and the timer that it arms.
func (h *history) seldom(t *events.Task, i int) (f events.Fact, timer events.TimerKind, within time.Duration) {
	by := events.By{Who: "me", RequestID: fmt.Sprint(h.inbox)}
	step, kind := t.Plan.Steps[i].ID, events.Do
	if t.Ending != "" {
		kind = events.Undo
	}
	attempt := 0
	if run := t.Run(i, kind); run != nil {
		attempt = run.Attempt
	}
	switch h.rnd.IntN(11) {
	case 0:
		return &events.TaskCancelled{By: by}, "", 0
	case 1:
		return &events.TaskUndoing{By: by, Ending: events.StateCancelled, Keep: h.rnd.IntN(2) == 0}, "", 0
	case 2:
		return &events.RunReleased{Step: step, As: events.StepUndone, By: by}, "", 0
	case 3: // the request couldn't be sent
		return &events.AttemptFailed{Kind: kind, Step: step, Attempt: attempt + 1, Effect: events.EffectNone, Error: &events.Error{Code: events.CodeNoSuchAgent}}, events.TimerFailed, 0
	case 4: // even during a hold
		return &events.AttemptCompleted{Kind: kind, Step: step, Attempt: attempt}, "", 0
	case 5:
		return &events.AttemptRejected{Kind: kind, Step: step, Attempt: attempt, Error: &events.Error{Code: "no"}}, "", 0
	case 6:
		return &events.AttemptExpired{Kind: kind, Step: step, Attempt: attempt}, "", 0
	case 7:
		return &events.RunErrored{Kind: kind, Step: step, Error: &events.Error{Code: events.CodeTriesExhausted}}, "", 0
	case 8:
		return &events.TaskHeld{Error: &events.Error{Code: events.CodeTriesExhausted}}, "", 0
	case 9:
		return h.migration(t)
	}
	return &events.TaskResumed{By: by}, events.TimerTask, 30 * time.Minute
}

// otherPlan has the steps of testPlan in another order, and one more.
var otherPlan = func() *events.Plan {
	steps := slices.Clone(testPlan.Steps)
	slices.Reverse(steps)
	for i := range steps {
		steps[i].Needs = nil
		steps[i].Attempts.MaxAttempts += 2
	}
	return events.NewPlan(events.OnErrorHold, 40*time.Minute, append([]events.PlanStep{{ID: "before", Agent: "b", Operation: "o", Attempts: testAttempts}}, steps...))
}()

// migration gives the task another version, and the other plan.
func (h *history) migration(t *events.Task) (events.Fact, events.TimerKind, time.Duration) {
	f := &events.TaskMigrated{By: events.By{Who: "me", RequestID: fmt.Sprint(h.inbox)}, From: t.Version, Version: t.Version%3 + 1, Plan: otherPlan}
	if t.Plan == otherPlan {
		f.Plan = testPlan
	}
	if t.State == events.StateProcessing {
		return f, events.TimerTask, t.CompleteByUnder(f.Plan).Sub(h.at)
	}
	return f, "", 0
}

// records makes n records.
func (h *history) records(n int) []events.Record {
	rs := make([]events.Record, n)
	for i := range rs {
		rs[i] = h.next()
	}
	return rs
}

type record = events.Record
