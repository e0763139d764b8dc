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
	// admissionShare divides MaxRunnable. The quotient is the most that one agent or one workflow can count, so that
	// its backlog doesn't close admission for others.
	admissionShare = 4
	// waitingPerRunnable bounds the memory of a worker. While waitingPerRunnable * MaxRunnable steps wait for agents,
	// no task is admitted. A waiting step takes about 300 bytes.
	waitingPerRunnable = 100
	// reopenShare is the share of MaxRunnable at which submissions resume. It is rounded down.
	reopenShare = 0.9
)

// workload is what counts against MaxRunnable.
type workload struct {
	// agents counts steps by agent: those that were sent to it, and those that wait for it if it is responsive.
	agents map[string]int
	// unslotted is the number of tasks with a running attempt at an agent without a limit.
	unslotted int
	// workflows counts by workflow: tasks with a running attempt, and steps that wait for responsive agents.
	workflows map[string]int
	// waiting is the number of all steps that wait for agents.
	waiting int
}

// admissionLoad returns the load that is compared with limit. An agent or a workflow counts at most its share. The
// smaller of both sums is the load. So a workflow that uses many agents counts as one workflow, and an agent of many
// workflows counts as one agent.
func (w *workload) admissionLoad(limit int) int {
	if w.waiting >= waitingPerRunnable*limit {
		return max(w.waiting, limit)
	}
	share := max(1, limit/admissionShare)
	agents, workflows := w.unslotted, 0
	for _, n := range w.agents {
		agents += min(n, share)
	}
	for _, n := range w.workflows {
		workflows += min(n, share)
	}
	return min(agents, workflows)
}

// busiestMax is how many agents are reported when submissions are paused.
const busiestMax = admissionShare

// busiest returns the agents with the most steps, in descending order.
func (w *workload) busiest() []string {
	names := slices.SortedFunc(maps.Keys(w.agents), func(a, b string) int {
		return cmp.Or(cmp.Compare(w.agents[b], w.agents[a]), cmp.Compare(a, b))
	})
	return names[:min(len(names), busiestMax)]
}

// admissionOpen decides whether submissions are read. wasOpen adds a hysteresis: once paused, they resume at
// reopenShare.
func admissionOpen(wasOpen bool, load, limit int) bool {
	if wasOpen {
		return load < limit
	}
	return load <= int(reopenShare*float64(limit))
}

// updateAdmission pauses or resumes the tasks inbox. Submissions that wait in the topic cost no memory. The other
// inboxes are still read, so running work completes.
func (w *worker) updateAdmission() {
	sum := &workload{}
	if w.admissionClosed || w.loadUpperBound() >= w.cfg.MaxRunnable {
		sum = w.sumWorkload()
	}
	load := sum.admissionLoad(w.cfg.MaxRunnable)
	open := admissionOpen(!w.admissionClosed, load, w.cfg.MaxRunnable)
	if open == !w.admissionClosed {
		return
	}
	tasks := w.cfg.Namespace.Inbox(events.Tasks)
	if w.admissionClosed = !open; w.admissionClosed {
		w.client.Pause(inboxgate.AllPartitions, tasks, inboxgate.PausedForAdmission, time.Time{})
	} else {
		w.client.Resume(inboxgate.AllPartitions, inboxgate.PausedForAdmission, tasks)
	}
	w.cfg.Listener.Admission(w.owner, open, load, sum.busiest())
}

// loadUpperBound returns a cheap upper bound of admissionLoad. While it is below the limit, the exact sum isn't needed.
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

// sumWorkload adds up the workloads of the worker's partitions.
func (w *worker) sumWorkload() *workload {
	sum := &workload{agents: map[string]int{}, workflows: map[string]int{}}
	slotted, running := 0, 0
	for _, p := range w.partitions {
		running += len(p.runnable.tasks)
		for workflow, n := range p.runnable.workflows {
			sum.workflows[workflow] += n
		}
		if p.flow == nil {
			continue
		}
		for _, a := range p.flow.order {
			slotted += a.outstanding
			sum.agents[a.name] += a.outstanding
			sum.waiting += len(a.queue)
			if !w.health.isResponsive(a.name) {
				continue // its queue may never drain
			}
			sum.agents[a.name] += len(a.queue)
			for workflow, n := range a.waiting {
				sum.workflows[workflow] += n
			}
		}
	}
	sum.unslotted = max(0, running-slotted)
	return sum
}

// runnable holds the tasks of a partition that have a running attempt, and their number by workflow.
type runnable struct {
	tasks     map[string]string // the workflow, by task
	workflows map[string]int
}

func newRunnable() runnable { return runnable{map[string]string{}, map[string]int{}} }

// update adds or removes a task by its state.
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

// decrement subtracts one and deletes a count of zero.
func decrement(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}
