package point

import (
	"context"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/supervisor"
)

// Point is the name of a point.
type Point string

// The points, and what has happened and what has not at each of them.
const (
	// Assigned: a scheduler was assigned a partition, and has read nothing of it.
	Assigned Point = "assigned"
	// Polled: Poll has returned records to a worker or an agent, which has not handled them yet.
	Polled Point = "polled"
	// Produced: the records and offsets of a worker's transaction are acknowledged, and the request that
	// commits it is not sent. Needs Dial.
	Produced Point = "produced"
	// Sent: that request is sent, and the worker has not received the answer. Needs Dial.
	Sent Point = "sent"
	// Committed: the worker has received the answer, and has not accepted the new state.
	Committed Point = "committed"
	// Applied: the new state of a partition is accepted, and not flushed to disk.
	Applied Point = "applied"
	// Taken: an agent's handler has returned, and the reply is not sent.
	Taken Point = "taken"
	// Due: a supervisor has found due timers, and has not sent their recoveries.
	Due Point = "due"
)

// The points of each role.
var (
	OfScheduler  = []Point{Assigned, Polled, Produced, Sent, Committed, Applied}
	OfSupervisor = []Point{Due}
	OfAgent      = []Point{Polled, Taken}
)

// Hook is called when a point is passed.
type Hook func(Point)

// Seams returns the seams for all points except Produced and Sent, which Dial provides.
func Seams(hook Hook) instance.Seams {
	return instance.Seams{
		Worker:  func(c scheduler.Client) scheduler.Client { return &worker{c, hook} },
		History: func(h scheduler.History) scheduler.History { return &history{h, hook} },
		Tasks:   func(_ int32, t scheduler.Tasks) scheduler.Tasks { return &tasks{t, hook} },
		Outbox:  func(o supervisor.Outbox) supervisor.Outbox { return &outbox{o, hook} },
		Sessions: func(s agent.Session) agent.Session {
			at := &session{s, hook}
			if h, ok := s.(agent.PartitionHolder); ok {
				return &holder{at, h} // the agent checks for this interface
			}
			return at
		},
	}
}

type worker struct {
	scheduler.Client
	hook Hook
}

func (w *worker) Poll(ctx context.Context) ([]events.Record, error) {
	records, err := w.Client.Poll(ctx)
	if len(records) > 0 {
		w.hook(Polled)
	}
	return records, err
}

func (w *worker) Commit(ctx context.Context, out []events.Record) (bool, error) {
	committed, err := w.Client.Commit(ctx, out)
	if committed {
		w.hook(Committed)
	}
	return committed, err
}

type history struct {
	scheduler.History
	hook Hook
}

func (h *history) Read(ctx context.Context, topic string, p int32, from int64, fn func([]events.Record) error) (int64, error) {
	h.hook(Assigned)
	return h.History.Read(ctx, topic, p, from, fn)
}

type tasks struct {
	scheduler.Tasks
	hook Hook
}

func (t *tasks) Accept(changed []*events.Task, st events.PartitionState, next int64) {
	t.Tasks.Accept(changed, st, next)
	t.hook(Applied)
}

type outbox struct {
	supervisor.Outbox
	hook Hook
}

func (o *outbox) Send(ctx context.Context, rs ...events.Record) error {
	o.hook(Due)
	return o.Outbox.Send(ctx, rs...)
}

type session struct {
	agent.Session
	hook Hook
}

func (s *session) Poll(ctx context.Context) ([]events.Record, error) {
	records, err := s.Session.Poll(ctx)
	if len(records) > 0 {
		s.hook(Polled)
	}
	return records, err
}

func (s *session) Send(ctx context.Context, reply events.Record) error {
	s.hook(Taken)
	return s.Session.Send(ctx, reply)
}

type holder struct {
	*session
	agent.PartitionHolder
}

func (h *holder) SendAsOwner(ctx context.Context, partition int32, offset int64, reply events.Record) error {
	h.hook(Taken)
	return h.PartitionHolder.SendAsOwner(ctx, partition, offset, reply)
}
