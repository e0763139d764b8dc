package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

const (
	// admissionShare is the part of MaxRunnable with which one agent, or one workflow, counts at most.
	// So the backlog of one leaves room for others.
	admissionShare = 4
	// waitingPerRunnable bounds the memory of a worker: it admits nothing while so many steps as this
	// times MaxRunnable wait for agents, whichever agents those are. A step that waits takes about 300 bytes.
	waitingPerRunnable = 100
	// reopenShare is the share of MaxRunnable at which tasks flow again; of a small one that is none.
	reopenShare = 0.9
)

// workload is what counts against MaxRunnable.
type workload struct {
	// agents is the number of steps that an agent has been sent, and of those that wait for it if it answers.
	agents map[string]int
	// unslotted is the number of tasks at work at agents whose requests nobody counts.
	unslotted int
	// workflows is the number of tasks at work of each workflow, and of its steps that wait for agents that answer.
	workflows map[string]int
	// waiting is the number of all steps that wait.
	waiting int
}

// counted is the workload as it counts against most. Neither an agent nor a workflow counts for more than
// its share: the lesser of both sums counts, so a workflow of many agents is one workflow, and an agent of
// many workflows one agent.
func (w *workload) admissionLoad(most int) int {
	if w.waiting >= waitingPerRunnable*most {
		return max(w.waiting, most)
	}
	share := max(1, most/admissionShare)
	agents, workflows := w.unslotted, 0
	for _, n := range w.agents {
		agents += min(n, share)
	}
	for _, n := range w.workflows {
		workflows += min(n, share)
	}
	return min(agents, workflows)
}

// busiestMax is how many agents are named when submissions wait.
const busiestMax = admissionShare

// busiest are the agents with most steps, those first.
func (w *workload) busiest() []string {
	names := slices.SortedFunc(maps.Keys(w.agents), func(a, b string) int {
		return cmp.Or(cmp.Compare(w.agents[b], w.agents[a]), cmp.Compare(a, b))
	})
	return names[:min(len(names), busiestMax)]
}

// admissionOpen decides whether submissions flow, when so much counts against most and they did so before.
func admissionOpen(flowed bool, counted, most int) bool {
	if flowed {
		return counted < most
	}
	return counted <= int(reopenShare*float64(most))
}

// admit pauses tasks while too much is at work: a submission that waits in the topic costs nothing. The
// other inboxes go on, so work drains.
func (l *worker) updateAdmission() {
	w := &workload{}
	if l.admissionClosed || l.loadUpperBound() >= l.cfg.MaxRunnable {
		w = l.sumWorkload()
	}
	counted := w.admissionLoad(l.cfg.MaxRunnable)
	open := admissionOpen(!l.admissionClosed, counted, l.cfg.MaxRunnable)
	if open == !l.admissionClosed {
		return
	}
	tasks := l.cfg.Namespace.Inbox(events.Tasks)
	if l.admissionClosed = !open; l.admissionClosed {
		l.log.Pause(inboxgate.AllPartitions, tasks, inboxgate.PausedForAdmission, time.Time{})
	} else {
		l.log.Resume(inboxgate.AllPartitions, inboxgate.PausedForAdmission, tasks)
	}
	l.cfg.Listener.admission(l.owner, open, counted, w.busiest())
}

// loadUpperBound is no less than what can count: as long as that is below the bound nothing need be summed up.
func (w *worker) loadUpperBound() (n int) {
	for _, p := range w.partitions {
		if n += len(p.runnable.tasks); p.flow != nil {
			n += p.flow.queued
			for _, a := range p.flow.order {
				n += a.outstanding
			}
		}
	}
	return n
}

// workload sums up the worker's partitions.
func (l *worker) sumWorkload() *workload {
	w := &workload{agents: map[string]int{}, workflows: map[string]int{}}
	slotted, running := 0, 0
	for _, p := range l.partitions {
		running += len(p.runnable.tasks)
		for workflow, n := range p.runnable.workflows {
			w.workflows[workflow] += n
		}
		if p.flow == nil {
			continue
		}
		for _, a := range p.flow.order {
			slotted += a.outstanding
			w.agents[a.name] += a.outstanding
			w.waiting += len(a.queue)
			if !l.health.isResponsive(a.name) {
				continue // its queue may never drain
			}
			w.agents[a.name] += len(a.queue)
			for workflow, n := range a.waiting {
				w.workflows[workflow] += n
			}
		}
	}
	w.unslotted = max(0, running-slotted)
	return w
}

// runnable are the tasks of a partition that an agent is at work on, and how many of each workflow.
type runnable struct {
	tasks     map[string]string // the workflow, by task
	workflows map[string]int
}

func newRunnable() runnable { return runnable{map[string]string{}, map[string]int{}} }

// set takes over what a task is now.
func (r *runnable) update(t *events.Task) {
	workflow, was := r.tasks[t.ID]
	switch is := hasRunningAttempt(t); {
	case is && !was:
		r.tasks[t.ID] = t.Workflow
		r.workflows[t.Workflow]++
	case was && !is:
		delete(r.tasks, t.ID)
		decrement(r.workflows, workflow)
	}
}

// decrement counts one less, and forgets what is none.
func decrement(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}
