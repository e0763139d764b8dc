package batchrun

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
)

// send sends the commands of all batches until ctx ends.
func (s *Service) send(ctx context.Context) error {
	tail, err := s.openAnswers(ctx)
	if err != nil {
		return err
	}
	defer tail.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel(nil)
	s.setSends(true)
	s.cfg.Log.Info("this process sends the commands of batches")
	defer s.setSends(false)
	a := &answers{waiting: map[string]chan *events.Answer{}}
	parts.Go(func() {
		for {
			rs, err := tail.Poll(ctx)
			if err != nil {
				cancel(fmt.Errorf("read the answers: %w", err))
				return
			}
			a.deliver(rs)
		}
	})
	running := map[string]bool{}
	defer s.reportOpen(false)
	for {
		changed := s.Changed()
		s.reportOpen(true)
		for _, id := range s.active() {
			if !running[id] {
				running[id] = true
				parts.Go(func() {
					if err := s.runBatch(ctx, a, id); err != nil {
						cancel(fmt.Errorf("batch %s: %w", id, err))
					}
				})
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Service) setSends(sends bool) {
	s.topic.Lock()
	defer s.topic.Unlock()
	s.sends = sends
}

// reportOpen tells the listener of the batches that haven't ended.
func (s *Service) reportOpen(sends bool) {
	if s.cfg.Listener.Open == nil {
		return
	}
	batches, waiting := 0, 0
	if sends {
		s.topic.Lock()
		for _, k := range s.fold.Active() {
			batches, waiting = batches+1, waiting+k.Counts[batch.Waiting]
		}
		s.topic.Unlock()
	}
	s.cfg.Listener.Open(batches, waiting)
}

func (s *Service) active() (ids []string) {
	s.topic.Lock()
	defer s.topic.Unlock()
	for _, k := range s.fold.Active() {
		if s.cfg.Sends == nil || s.cfg.Sends(k.ID) {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// run is a batch that this process sends. Only the goroutine of loop has the batch.
type run struct {
	s       *Service
	answers *answers
	id      string
	at      time.Time
	b       *batch.Batch
	numbers map[string]int // of the tasks
	posted  chan func()    // what came of commands and looks
	looking map[string]bool
	slots   chan struct{} // of concurrent looks
	open    sync.WaitGroup

	dirty   map[string]bool // tasks with results that aren't reported yet
	told    string          // the trouble that was reported
	flushAt time.Time       // zero: nothing is to be reported
}

// runBatch sends the commands of a batch, to its end.
func (s *Service) runBatch(ctx context.Context, a *answers, id string) error {
	s.topic.Lock()
	k := s.fold.Find(id)
	if k == nil || k.Ended != nil {
		s.topic.Unlock()
		return nil
	}
	r := &run{s: s, answers: a, id: id, at: k.At, told: k.Trouble, b: batch.New(id, k.Control(), k.Plan(), k.Targets, slices.Clone(k.Results)),
		numbers: make(map[string]int, len(k.Targets)), posted: make(chan func(), batch.InFlightMax+batch.CanaryMax+batch.SampleMax), looking: map[string]bool{},
		slots: make(chan struct{}, looksMax), dirty: map[string]bool{}}
	for i := range k.Targets {
		r.numbers[k.Targets[i].Task] = i
	}
	s.topic.Unlock()
	within, cancel := context.WithCancel(ctx)
	err := r.loop(within)
	cancel()
	r.open.Wait()
	if ctx.Err() != nil {
		return nil // another process continues
	}
	return err
}

func (r *run) loop(ctx context.Context) error {
	for {
		changed := r.s.Changed()
		r.checkStop()
		do := r.b.Next(time.Now())
		if do.Ended {
			return r.end(ctx)
		}
		r.start(ctx, &do)
		until := do.Until
		if !r.flushAt.IsZero() && (until.IsZero() || r.flushAt.Before(until)) {
			until = r.flushAt
		}
		wait := time.Hour // longer than any report takes
		if !until.IsZero() {
			wait = time.Until(until)
		}
		timer := time.NewTimer(wait)
		select {
		case came := <-r.posted:
			came()
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
		if err := r.flush(ctx, false); err != nil {
			return err
		}
	}
}

// checkStop stops the batch if that was requested, or if it is too old.
func (r *run) checkStop() {
	r.s.topic.Lock()
	var stop *batch.StopRequest
	if k := r.s.fold.Find(r.id); k != nil {
		stop = k.Stop
	}
	r.s.topic.Unlock()
	switch {
	case stop != nil:
		r.b.Stop(fmt.Sprintf("%s stopped it: %s", cmp.Or(stop.By, stop.Claimed), stop.Why))
	case time.Since(r.at) > batch.LifeMax:
		r.b.Stop(fmt.Sprintf("it is older than %d days", int(batch.LifeMax.Hours()/24)))
	}
}

// start begins what is to be done.
func (r *run) start(ctx context.Context, do *batch.Step) {
	for i := range do.Send {
		x := &do.Send[i]
		r.open.Go(func() {
			answer, why := r.s.command(ctx, r.answers, x)
			r.post(ctx, func() {
				r.b.Answered(time.Now(), x.Task, answer, why)
				r.mark(x.Task)
				if told := r.s.cfg.Listener.Commanded; told != nil {
					told(r.b.Result(x.Task).Status)
				}
			})
		})
	}
	for _, task := range do.Look {
		if r.looking[task] {
			continue
		}
		r.looking[task] = true
		r.open.Go(func() {
			r.slots <- struct{}{}
			v, err := r.s.cfg.Look(ctx, task)
			<-r.slots
			r.post(ctx, func() {
				delete(r.looking, task)
				r.observe(task, v, err)
			})
		})
	}
}

func (r *run) post(ctx context.Context, fn func()) {
	select {
	case r.posted <- fn:
	case <-ctx.Done():
	}
}

// observe gives the batch what came of a look at a task.
func (r *run) observe(task string, v *events.TaskView, err error) {
	if err != nil {
		r.b.ObservationFailed(task, err.Error())
		r.scheduleReport()
		return
	}
	before := r.b.Result(task).Status
	r.b.Observed(task, v)
	if r.b.Result(task).Status != before {
		r.mark(task)
	}
	r.scheduleReport() // a look that succeeds ends the trouble
}

// mark notes that a result is to be reported.
func (r *run) mark(task string) {
	r.dirty[task] = true
	r.scheduleReport()
}

// unreported reports whether a result or the trouble has changed since the last report.
func (r *run) unreported() bool { return len(r.dirty) > 0 || r.told != r.b.Trouble() }

// scheduleReport sets when to report, if there is something to report.
func (r *run) scheduleReport() {
	if r.flushAt.IsZero() && r.unreported() {
		r.flushAt = time.Now().Add(reportInterval)
	}
}

// flush reports results and the trouble, if it is time. Trouble can change without a result.
func (r *run) flush(ctx context.Context, all bool) error {
	due := all || !r.flushAt.IsZero() && !time.Now().Before(r.flushAt)
	for due && r.unreported() || len(r.dirty) >= batch.ReportMax {
		report := batch.Report{Trouble: r.b.Trouble()}
		for task := range r.dirty {
			if len(report.Results) == batch.ReportMax {
				break
			}
			t := r.b.Result(task)
			report.Results = append(report.Results, batch.ReportedResult{Number: r.numbers[task], Status: t.Status, State: t.State, Why: t.Why})
			delete(r.dirty, task)
		}
		slices.SortFunc(report.Results, func(a, b batch.ReportedResult) int { return cmp.Compare(a.Number, b.Number) })
		record, err := r.s.records.Reported(r.id, report)
		if err == nil {
			err = r.s.topic.Append(ctx, record)
		}
		if err != nil {
			return err
		}
		r.told = report.Trouble
	}
	if !r.unreported() {
		r.flushAt = time.Time{}
	}
	return nil
}

// end reports what is left, and that the batch has ended.
func (r *run) end(ctx context.Context) error {
	if err := r.flush(ctx, true); err != nil {
		return err
	}
	why, timedOut := r.b.Stopped()
	record, err := r.s.records.Ended(r.id, batch.End{Why: why, TimedOut: timedOut})
	if err == nil {
		err = r.s.topic.Append(ctx, record)
	}
	return err
}
