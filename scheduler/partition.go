package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// partition is what a lane keeps of a partition that it owns.
type partition struct {
	id         int32
	generation uint64 // of the assignment
	cancel     context.CancelFunc
	release    func() // gives the view back to other lanes of the process
	tasks      Tasks  // nil until restored
	claimed    bool   // this assignment has committed its claim
	claiming   uint64 // the epoch of a claim that is under way
	runnable   map[string]struct{}
	assignedAt time.Time
}

// ready reports whether the partition may act.
func (p *partition) ready() bool { return p.tasks != nil }

// accept takes over what a transaction has made true.
func (p *partition) accept(s *speculation, next int64) {
	tasks := make([]*events.Task, 0, len(s.tasks))
	for id, t := range s.tasks {
		tasks = append(tasks, t)
		if runs(t) {
			p.runnable[id] = struct{}{}
		} else {
			delete(p.runnable, id)
		}
	}
	p.tasks.Accept(tasks, s.state, next)
}

// runs reports whether an agent is at work on the task. What is held, waits or
// cools down costs nothing and doesn't count against admission.
func runs(t *events.Task) bool {
	if !t.Open() {
		return false
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		if s.State == events.StepRunning || s.Undo != nil && s.Undo.State == events.StepRunning {
			return true
		}
	}
	return false
}

// restored is what a restore hands to the lane.
type restored struct {
	id         int32
	generation uint64
	tasks      Tasks
	release    func()
	err        error
}

// reconcile makes the lane's partitions what the balancer's last word says.
// What went, or came anew, is dropped before anything else is decided.
func (l *lane) reconcile(ctx context.Context) error {
	assigned := l.log.Assigned()
	for id, p := range l.parts {
		if gen, ok := assigned[id]; !ok || gen != p.generation {
			l.drop(p)
		}
	}
	for id, gen := range assigned {
		if l.parts[id] == nil {
			l.restore(ctx, id, gen)
		}
	}
	for {
		select {
		case r := <-l.restores:
			if err := l.restoredOne(r); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// drop forgets a partition that went. What was accepted is true, whoever owns
// it now, so it may stay on disk.
func (l *lane) drop(p *partition) {
	p.cancel()
	delete(l.parts, p.id)
	l.cfg.Listener.lost(p.id)
	if p.tasks != nil {
		l.keep(p.tasks)
		p.release()
	}
}

// keep saves a view and closes it. A store that can't save is no loss: the log
// has it all; the error stops the lane at its next save.
func (l *lane) keep(v Tasks) {
	if err := v.Save(); err != nil {
		l.cfg.Listener.storeFailed(err)
		v.Discard()
		return
	}
	v.Close()
}

// restore begins to bring a partition to the end of its log, beside the lane.
func (l *lane) restore(ctx context.Context, id int32, gen uint64) {
	ctx, cancel := context.WithCancel(ctx)
	p := &partition{id: id, generation: gen, cancel: cancel, runnable: map[string]struct{}{}, assignedAt: time.Now()}
	l.parts[id] = p
	l.cfg.Listener.assigned(id)
	l.restoring.Go(func() {
		r := restored{id: id, generation: gen}
		r.tasks, r.release, r.err = l.cfg.restoreTasks(ctx, id)
		select {
		case l.restores <- r:
			l.log.Wake()
		case <-ctx.Done():
			r.giveBack()
		}
	})
}

func (r *restored) giveBack() {
	if r.tasks != nil {
		r.tasks.Discard()
		r.release()
	}
}

// restoreSaveBytes bounds what a restore keeps in memory beside the open tasks.
// Large batches cost least: most tasks of a long history are finished within one
// (measured: 4.3 us an event with 64 MB, 16 us with 1 MB).
const restoreSaveBytes = 64 << 20

// restoreTasks opens a partition's tasks where the store left them, and reads
// on to the high watermark. Another lane of the process may still have them
// open; that is waited for.
func (c *Config) restoreTasks(ctx context.Context, id int32) (Tasks, func(), error) {
	release, err := c.views.acquire(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	tasks, err := c.Tasks(id)
	if err != nil {
		release()
		return nil, nil, &storeError{id, "open", err}
	}
	_, err = c.History.Read(ctx, c.Namespace.Events(), id, tasks.Next(), func(rs []events.Record) error {
		for i := range rs {
			if err := tasks.Apply(&rs[i]); err != nil {
				return err
			}
		}
		if tasks.ChangedBytes() < restoreSaveBytes {
			return nil
		}
		if err := tasks.Save(); err != nil {
			return &storeError{id, "save", err}
		}
		return nil
	})
	if err != nil {
		tasks.Discard()
		release()
		return nil, nil, fmt.Errorf("restore partition %d: %w", id, err)
	}
	return tasks, release, nil
}

func (l *lane) restoredOne(r restored) error {
	p := l.parts[r.id]
	if p == nil || p.generation != r.generation || p.tasks != nil {
		r.giveBack() // it went meanwhile
		return nil
	}
	if r.err != nil {
		return r.err
	}
	p.tasks, p.release = r.tasks, r.release
	p.tasks.EachOpen(func(t *events.Task) bool {
		if runs(t) {
			p.runnable[t.ID] = struct{}{}
		}
		return true
	})
	l.log.Resume(p.id)
	l.cfg.Listener.restored(p.id, time.Since(p.assignedAt))
	return nil
}
