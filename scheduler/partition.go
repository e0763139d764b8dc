package scheduler

import (
	"context"
	"time"

	"github.com/waybill-run/waybill/events"
)

// partition is what a worker keeps of a partition that it owns.
type partition struct {
	id             int32
	generation     uint64 // of the assignment
	cancel         context.CancelFunc
	releaseView    func() // gives the view back to other workers of the process
	tasks          Tasks  // nil until restored
	flow           *flow  // likewise
	unslottedSteps []unslottedStep
	claimed        bool   // this assignment has committed its claim
	claimEpoch     uint64 // the epoch of a claim that is under way
	runnable       runnable
	stopsReported  map[string]struct{} // stopped tasks of whose recoveries one is a dead letter; nil: none
	assignedAt     time.Time
	// confirmation is what of it isn't known to be in the log.
	confirmation confirmation
	loading      chan struct{} // closed when the load of finished tasks has ended; nil: none
}

// ready reports whether the partition may act.
func (p *partition) ready() bool { return p.tasks != nil }

// accept takes over what a transaction has made true.
func (p *partition) accept(s *speculation, next int64) {
	tasks := make([]*events.Task, 0, len(s.tasks))
	for _, t := range s.tasks {
		tasks = append(tasks, t)
		p.runnable.update(t)
	}
	p.tasks.Accept(tasks, s.state, next)
	p.confirmation.add(Accepted{next - 1, s.state.At})
}

// tell takes note of stopped tasks that a transaction has told of. They are as many at most
// as the view keeps stops.
func (p *partition) addStopsReported(tasks map[string]bool) {
	for task := range tasks {
		if p.stopsReported == nil {
			p.stopsReported = map[string]struct{}{}
		}
		p.stopsReported[task] = struct{}{}
	}
}

// started removes the first n unslotted steps.
func (p *partition) dropUnslotted(n int) {
	if p.unslottedSteps = p.unslottedSteps[n:]; len(p.unslottedSteps) == 0 {
		p.unslottedSteps = nil
	}
}

// runs reports whether an agent is at work on the task. What is held, waits or
// cools down costs nothing and doesn't count against admission.
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

// reconcile makes the worker's partitions what the balancer's last word says.
// What went, or came anew, is dropped before anything else is decided.
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

// drop forgets a partition that went. What was accepted is true, whoever owns
// it now, so it may stay on disk.
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

// keep saves a view and closes it. A store that can't save is no loss: the log
// has it all; the error stops the worker at its next save.
func (w *worker) saveAndClose(v Tasks) {
	if err := v.Save(); err != nil {
		w.cfg.Listener.storeFailed(err)
		v.Discard()
		return
	}
	v.Close()
}
