//go:build synctests

package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// signalNames are the signals that are sent. No step waits for the last one.
var signalNames = []string{"approved", "paid", "other"}

const (
	signalMost  = 8 * time.Second // the longest wait for a signal
	signalsKept = 64              // signals that may be sent again
)

// signalStep makes a step wait for a signal.
func signalStep(more *rand.Rand, s *workflow.Step) workflow.Step {
	within := 500*time.Millisecond + time.Duration(more.IntN(int(signalMost/time.Millisecond)))*time.Millisecond
	return workflow.Step{ID: s.ID, Needs: s.Needs, When: s.When, Signal: signalNames[more.IntN(2)], CompleteWithin: workflow.Within(within)}
}

// awaited returns the names of the signals that a workflow's steps wait for.
func awaited(d *workflow.Definition) (names []string) {
	for i := range d.Steps {
		if name := d.Steps[i].Signal; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// waitingTask is a task that waits, or will wait, for signals.
type waitingTask struct {
	id    string
	names []string
}

// signal sends signals: one to a task, one again, one to a task that isn't submitted yet or never will be, or a burst.
func (l *load) signal(ctx context.Context) {
	l.mu.Lock()
	next := l.n
	l.mu.Unlock()
	switch n := l.more.IntN(20); {
	case n == 0: // more than a task keeps
		for task := l.recentWaiting(2); task.names != nil && len(task.names) < events.MaxKeptSignals+4; {
			task.names = append(task.names, task.names[0])
			l.sendSignal(ctx, task.id, task.names[0])
		}
	case n == 1:
		for range 40 {
			l.sendSignalTo(ctx, l.recentWaiting(20))
		}
	case n == 2:
		l.sendSignal(ctx, fmt.Sprintf("task-%d", next+l.more.IntN(4)), l.anySignal())
	case n == 3:
		l.sendSignal(ctx, fmt.Sprintf("nobody-%d", l.more.IntN(10)), l.anySignal())
	case n == 4:
		l.sendSignal(ctx, l.recentTask(8), l.anySignal())
	case n < 8 && len(l.sent) > 0:
		s := l.sent[l.more.IntN(len(l.sent))]
		l.signals++
		l.send(ctx, s.Record(l.w.ns, "sim"))
	default:
		l.sendSignalTo(ctx, l.recentWaiting(4))
	}
}

func (l *load) anySignal() string { return signalNames[l.more.IntN(len(signalNames))] }

// recent draws an index of n, mostly one of about the last spread.
func (l *load) recent(n int, spread float64) int {
	return max(0, n-1-int(l.more.ExpFloat64()*spread))
}

// recentTask returns the id of one of about the last tasks.
func (l *load) recentTask(spread float64) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ids) == 0 {
		return "nobody"
	}
	return l.ids[l.recent(len(l.ids), spread)]
}

// recentWaiting returns one of about the last tasks with steps that wait for signals. The zero value: there is none.
func (l *load) recentWaiting(spread float64) waitingTask {
	if len(l.waiting) == 0 {
		return waitingTask{}
	}
	return l.waiting[l.recent(len(l.waiting), spread)]
}

func (l *load) sendSignalTo(ctx context.Context, t waitingTask) {
	if len(t.names) > 0 {
		l.sendSignal(ctx, t.id, t.names[l.more.IntN(len(t.names))])
	}
}

// sendSignal sends a new signal. One without an id is identified by its position.
func (l *load) sendSignal(ctx context.Context, task, name string) {
	l.signals++
	s := events.Signal{Task: task, Name: name, Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, l.signals)), By: []string{"", "ada"}[l.more.IntN(2)]}
	if l.more.IntN(4) > 0 {
		s.ID = fmt.Sprintf("signal-%d", l.signals)
	}
	if len(l.sent) < signalsKept {
		l.sent = append(l.sent, s)
	} else {
		l.sent[l.more.IntN(signalsKept)] = s
	}
	l.send(ctx, s.Record(l.w.ns, "sim"))
}

// submitted records a task, and may send signals to it before its steps start.
func (l *load) submitted(ctx context.Context, id string, d *workflow.Definition) {
	t := waitingTask{id, awaited(d)}
	if len(t.names) == 0 {
		return
	}
	l.waiting = append(l.waiting, t)
	for range l.more.IntN(3) {
		l.sendSignalTo(ctx, t)
	}
}

// refund undoes a task that was probably processed.
func (l *load) refund(ctx context.Context) {
	l.mu.Lock()
	l.controls++
	n := l.controls
	l.mu.Unlock()
	x := events.Control{Task: l.recentTask(20), Command: events.UndoTask, Processed: true,
		By: events.By{Who: "sim", Why: "refund", RequestID: fmt.Sprintf("request-%d", n)}}
	l.send(ctx, x.Record(l.w.ns, "sim"))
}

// addition does what was added after the draws of run.
func (l *load) addition(ctx context.Context) {
	switch n := l.more.IntN(8); {
	case n < 3:
		l.signal(ctx)
	case n == 3:
		l.refund(ctx)
	case n == 4:
		r := events.Record{Topic: l.w.ns.Inbox(events.Signals), Partition: int32(l.more.IntN(int(partitions))), Key: []byte(l.recentTask(8)),
			Value: []byte([]string{"", "{", `{"task":"x"}`, `{"task":"x","name":"paid","nothing":1}`}[l.more.IntN(4)])}
		l.mu.Lock()
		l.unreadable++
		l.mu.Unlock()
		l.send(ctx, r)
	case n == 5:
		l.unreadableAnswer(ctx)
	}
}
