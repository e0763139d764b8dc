package scheduler

import (
	"context"
	"time"

	"github.com/waybill-run/waybill/events"
)

// partition is the state of a partition that a worker owns.
type partition struct {
	id             int32
	generation     uint64 // generation of the assignment
	cancel         context.CancelFunc
	releaseView    func() // allows other workers of the process to open the partition
	tasks          Tasks  // nil until restored
	flow           *flow  // nil until restored, or if agents have no limit
	unslottedSteps []unslottedStep
	claimed        bool   // the claim of this assignment is committed
	claimEpoch     uint64 // epoch of a claim that isn't committed yet
	runnable       runnable
	stopsReported  map[string]struct{} // stopped tasks with a dead letter for a recovery; may be nil
	faulted        map[string]string   // tasks that are stopped because a decision failed, with the reasons; may be nil
	assignedAt     time.Time
	submissions    submissionsRead
	// confirmation tracks which events aren't confirmed to be in the log.
	confirmation confirmation
	loading      chan struct{} // closed when the load of finished tasks has ended; nil: no load
	histories    Histories     // processed tasks that were read for commands that aren't decided yet
	stopReading  func()        // ends a read of histories; nil: none is running
}

// ready reports whether the partition is restored, so that it may decide.
func (p *partition) ready() bool { return p.tasks != nil }

// accept applies the speculative state of a committed transaction.
func (p *partition) accept(s *speculation, next int64) {
	tasks := make([]*events.Task, 0, len(s.tasks))
	for _, t := range s.tasks {
		tasks = append(tasks, t)
		p.runnable.update(t)
	}
	p.tasks.Accept(tasks, s.state, next)
	p.submissions.add(s.submissions)
	p.confirmation.add(Accepted{next - 1, s.state.At})
}

// addStopsReported adds stopped tasks that a transaction has reported. Their number is bounded, since the store bounds
// the number of stopped tasks, and faultedMax that of the others.
func (p *partition) addStopsReported(tasks map[string]bool) {
	for task := range tasks {
		if p.stopsReported == nil {
			p.stopsReported = map[string]struct{}{}
		}
		p.stopsReported[task] = struct{}{}
	}
}

// dropUnslotted removes the first n unslotted steps.
func (p *partition) dropUnslotted(n int) {
	if p.unslottedSteps = p.unslottedSteps[n:]; len(p.unslottedSteps) == 0 {
		p.unslottedSteps = nil
	}
}

// hasRunningAttempt reports whether an agent is executing an attempt of the task. A task that is held, waits or cools
// down doesn't count for admission.
func hasRunningAttempt(t *events.Task) bool {
	if !t.Open() {
		return false
	}
	for i := range t.Steps {
		s := t.Steps[i]
		if s.State == events.StepRunning && t.Plan.Steps[i].StepKind.CallsAgent() ||
			s.Undo != nil && s.Undo.State == events.StepRunning && t.Plan.StepKindOf(i, events.Undo).CallsAgent() {
			return true
		}
	}
	return false
}

// reconcile applies the current assignment. It runs before any decision, and drops revoked and reassigned partitions
// first.
func (w *worker) reconcile(ctx context.Context) error {
	assigned := w.client.Assigned()
	for id, p := range w.partitions {
		if gen, ok := assigned[id]; !ok || gen != p.generation {
			w.dropPartition(p)
		}
	}
	for id, gen := range assigned {
		if w.partitions[id] == nil {
			w.startRestore(ctx, id, gen)
		}
	}
	for {
		select {
		case r := <-w.restoreResults:
			if err := w.finishRestore(ctx, r); err != nil {
				return err
			}
		case r := <-w.loadResults:
			if err := w.finishLoad(r); err != nil {
				return err
			}
		case r := <-w.historyResults:
			w.finishReadingHistories(r)
		default:
			return nil
		}
	}
}

// dropPartition closes a partition that was reassigned. Its accepted state is committed, so it may stay on disk.
func (w *worker) dropPartition(p *partition) {
	p.cancel()
	delete(w.partitions, p.id)
	delete(w.health.flows, p.id)
	delete(w.refusedInRow, p.id)
	w.tooLarge.removePartition(p.id)
	if p.stopReading != nil {
		p.stopReading()
	}
	w.cfg.Listener.Lost(p.id)
	if p.tasks != nil {
		if p.loading != nil {
			<-p.loading // the load writes to the same store; its context has ended
		}
		p.tasks.Save()
		p.tasks.Discard()
		p.releaseView()
	}
}
