package scheduler

import (
	"context"
	"time"

	"github.com/waybill-run/waybill/events"
)

// partition is the state of a partition that a worker owns.
type partition struct {
	id             int32
	generation     uint64 // of the assignment
	cancel         context.CancelFunc
	releaseView    func() // lets other workers of the process open it
	tasks          Tasks  // nil until restored
	flow           *flow  // nil until restored, or if agents have no limit
	unslottedSteps []unslottedStep
	claimed        bool   // the claim of this assignment is committed
	claimEpoch     uint64 // epoch of a claim that isn't committed yet
	runnable       runnable
	stopsReported  map[string]struct{} // stopped tasks with a dead letter for a recovery; may be nil
	assignedAt     time.Time
	// confirmation tracks which events aren't known to be in the log.
	confirmation confirmation
	loading      chan struct{} // closed when the load of finished tasks has ended; nil: no load
}

// ready reports whether the partition may act.
func (p *partition) ready() bool { return p.tasks != nil }

// accept applies the speculative state of a committed transaction.
func (p *partition) accept(s *speculation, next int64) {
	tasks := make([]*events.Task, 0, len(s.tasks))
	for _, t := range s.tasks {
		tasks = append(tasks, t)
		p.runnable.update(t)
	}
	p.tasks.Accept(tasks, s.state, next)
	p.confirmation.add(Accepted{next - 1, s.state.At})
}

// addStopsReported adds stopped tasks that a transaction has reported. The view bounds their number.
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

// hasRunningAttempt reports whether an agent is at work on the task. A task that is held, waits or cools down doesn't
// count for admission.
func hasRunningAttempt(t *events.Task) bool {
	if !t.Open() {
		return false
	}
	for i := range t.Steps {
		s := t.Steps[i]
		if s.State == events.StepRunning || s.Undo != nil && s.Undo.State == events.StepRunning {
			return true
		}
	}
	return false
}

// reconcile applies the current assignment: revoked and newly assigned partitions are dropped first, before any
// decision.
func (w *worker) reconcile(ctx context.Context) error {
	assigned := w.log.Assigned()
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
	w.cfg.Listener.lost(p.id)
	if p.tasks != nil {
		if p.loading != nil {
			<-p.loading // it writes to the same store; its context has ended
		}
		w.saveAndClose(p.tasks)
		p.releaseView()
	}
}

// saveAndClose saves and closes a view. If that fails nothing is lost, since the log has everything; the next save of
// the worker returns the error.
func (w *worker) saveAndClose(v Tasks) {
	if err := v.Save(); err != nil {
		w.cfg.Listener.storeFailed(err)
		v.Discard()
		return
	}
	v.Close()
}
