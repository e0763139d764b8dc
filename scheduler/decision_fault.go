package scheduler

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// A decision that panics is a fault of this build. Without a guard the worker would end, and each successor that reads the same
// input: one task would block all others of its partition. So the transaction is rolled back, and the task is stopped, as one whose
// history can't be read: its inputs become dead letters, which can be redriven with a build without the fault. Deciding changes
// only copies of its own, so nothing of the failed decision is left. The next owner of the partition tries again.

// faultedMax is the most tasks that an owner stops because a decision failed. Past it the fault isn't about single tasks, and
// the process ends.
const faultedMax = 100

// errDecisionFailed says that a decision panicked, and that its task is stopped.
var errDecisionFailed = errors.New("a decision failed")

// guardDecision makes a decision about a task. If it panics, the task is stopped.
func (w *worker) guardDecision(p *partition, task string, decide func() Decision) (d Decision, err error) {
	defer func() {
		fault := recover()
		if fault == nil {
			return
		}
		if len(p.faulted) >= faultedMax {
			panic(fault)
		}
		if p.faulted == nil {
			p.faulted = map[string]string{}
		}
		why := shortened(fmt.Sprintf("a decision about it failed, by a fault of this build: %v", fault))
		p.faulted[task] = why
		w.cfg.Listener.DecisionFailed(p.id, task, why, debug.Stack())
		err = errDecisionFailed
	}()
	return decide(), nil
}

// whyStopped reports why nothing can be decided about a task: its history can't be read, or a decision has failed.
func (p *partition) whyStopped(task string) (why string, stopped bool) {
	if why, stopped = p.faulted[task]; stopped {
		return why, true
	}
	if why, stopped = p.tasks.WhyStopped(task); stopped {
		why = "this build can't read its history: " + why
	}
	return why, stopped
}
