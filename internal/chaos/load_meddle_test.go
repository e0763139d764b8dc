package chaos

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// strayWriters write to the inboxes in addition to the load: commands of operators, malformed records, and replies that
// are repeated, late or for wrong attempts.
type strayWriters struct {
	load     *load
	producer *kafka.Producer

	mu  sync.Mutex
	rng *rand.Rand

	commands, garbage, parroted atomic.Int64
}

const (
	commandEvery = 200 * time.Millisecond
	garbageEvery = 400 * time.Millisecond
	// parrotShare is n: one in n replies is repeated.
	parrotShare = 10
	// parrotLateMax bounds the delay of a repeated reply.
	parrotLateMax = 8 * time.Second
	// parrotSource is the ce_source of repeated replies. No guarantee covers them.
	parrotSource = "chaos/parrot"
	// foreignAttempt is larger than the number of any real attempt.
	foreignAttempt = 1000
)

func openStrayWriters(cfg kafka.Config, l *load, seed uint64) (*strayWriters, error) {
	producer, err := kafka.OpenProducerWithin(cfg, deliverWithin)
	if err != nil {
		return nil, err
	}
	return &strayWriters{load: l, producer: producer, rng: rand.New(rand.NewPCG(seed, 2))}, nil
}

// run writes until ctx ends.
func (m *strayWriters) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { m.repeat(ctx, commandEvery, m.command) })
	all.Go(func() { m.repeat(ctx, garbageEvery, m.sendMalformed) })
	all.Go(func() {
		kafkatest.Follow(ctx, logreader.FollowerConfig{Config: m.load.cfg, Group: string(m.load.cfg.Namespace) + "parrot",
			Topics: []string{m.load.cfg.Namespace.Inbox(events.Replies)}, Partitions: events.DefaultPartitions}, func(rs []events.Record) { m.repeatReplies(ctx, rs) }, func(error) {})
	})
	all.Wait()
}

func (m *strayWriters) repeat(ctx context.Context, every time.Duration, do func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// send writes a record asynchronously and ignores the result.
func (m *strayWriters) send(r events.Record) {
	m.producer.SendAsync(context.Background(), r, func(events.Record, error) {})
}

// command sends a command to a task, mostly to one that is held.
func (m *strayWriters) command() {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := &events.Control{By: events.By{Who: "chaos", Why: "at random", RequestID: fmt.Sprintf("%016x", m.rng.Uint64())}}
	if n := m.rng.IntN(10); n < 6 {
		m.resolveHeld(x)
	} else if n < 8 {
		m.refund(x)
	} else if x.Task = m.load.randomTask(m.rng); x.Task != "" {
		x.Command = events.Commands[m.rng.IntN(len(events.Commands))]
		x.Keep = m.rng.IntN(4) == 0
		if x.Command == events.Migrate {
			x.Version = 1 + m.rng.IntN(2) // refused: there is version 1 only
		}
		x.Processed = x.Command == events.UndoTask && m.rng.IntN(3) > 0
		x.Step, x.As = "charge", events.StepCompleted // of a release; mostly rejected
		if x.Command != events.Release {
			x.Step, x.As = "", ""
		}
	}
	if x.Task == "" {
		return
	}
	m.commands.Add(1)
	r := x.Record(m.load.cfg.Namespace, "chaos/operator")
	m.send(r)
	if m.rng.IntN(10) == 0 {
		m.send(r) // the same request again
	}
}

// refundTries bounds the search for a processed task.
const refundTries = 20

// refund undoes a processed task.
func (m *strayWriters) refund(x *events.Control) {
	for range refundTries {
		if id := m.load.randomTask(m.rng); m.load.seen.stateOf(id) == events.StateProcessed {
			x.Task, x.Command, x.Processed = id, events.UndoTask, true
			return
		}
	}
}

// resolveHeld picks a held task and a command that ends the hold.
func (m *strayWriters) resolveHeld(x *events.Control) {
	o := m.load.seen
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.held { // in random order
		x.Task = id
		break
	}
	t := o.checker.Task(x.Task)
	if t == nil {
		x.Task = ""
		return
	}
	switch m.rng.IntN(4) {
	case 0:
		x.Command = events.Resubmit
	case 1:
		x.Command = events.UndoTask
	case 2:
		x.Command, x.Keep = events.Cancel, m.rng.IntN(2) == 0
	case 3:
		x.Command, x.As = events.Release, events.StepCompleted
		for i := range t.Steps {
			s := t.Steps[i]
			if s.Undo != nil && s.Undo.State == events.StepError {
				x.Step, x.As = t.Plan.Steps[i].ID, events.StepUndone
			} else if x.Step == "" && s.State == events.StepError {
				x.Step = t.Plan.Steps[i].ID
			}
		}
		if x.Step == "" {
			x.Command, x.As = events.Resubmit, ""
		}
	}
}

// sendMalformed writes an unusable record to an inbox.
func (m *strayWriters) sendMalformed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.garbage.Add(1)
	inbox := events.Inbox(m.rng.IntN(int(events.Inboxes)))
	id := fmt.Sprintf("garbage-%d", m.rng.IntN(100))
	r := events.Record{Topic: m.load.cfg.Namespace.Inbox(inbox), Partition: -1, Key: []byte(id)}
	header := func(key, value string) {
		r.Headers = append(r.Headers, events.Header{Key: key, Value: []byte(value)})
	}
	switch m.rng.IntN(9) {
	case 0: // null
	case 1:
		r.Value = []byte(`{"id":`)
	case 2:
		r.Value = []byte("\xff\x00\xfe no text")
		r.Key = nil
		r.Partition = int32(m.rng.IntN(events.DefaultPartitions))
	case 3:
		r.Value = []byte(`{"id":"` + id + `","workflow":"no-such"}`)
	case 4: // a future version
		r.Value = []byte(`{"id":"` + id + `","workflow":"chain","task":"` + id + `"}`)
		header(events.HeaderType, []string{"waybill.task.submitted.v9", "waybill.reply.v9", "waybill.recovery.v9", "waybill.control.v9", "waybill.signal.v9"}[inbox])
	case 5: // a key that names another task
		r.Value = []byte(`{"id":"another","workflow":"chain","task":"another","timer":1,"action":"hold","command":"cancel"}`)
		header(events.HeaderType, []string{events.TypeSubmission, events.TypeReply, events.TypeRecovery, events.TypeControl, events.TypeSignal}[inbox])
		header(events.HeaderID, "x")
		header(events.HeaderRequest, "another/charge/do/1/token")
		header(events.HeaderOutcome, string(events.Completed))
	case 6: // too large for the inbox, but not for the topic
		r.Value = bytes.Repeat([]byte("x"), 600<<10)
	case 7: // the id of an existing order, with another body
		if id := m.load.randomTask(m.rng); id != "" {
			s := events.Submission{ID: id, Workflow: "chain", Input: []byte(`{"card":"another"}`)}
			r = s.Record(m.load.cfg.Namespace, "chaos")
		}
	case 8: // misplaced for the second time
		r.Value = []byte(`{"id":"` + id + `","workflow":"chain","input":{},"task":"` + id + `"}`)
		r.Partition = (events.Partition(r.Key, events.DefaultPartitions) + 1) % events.DefaultPartitions
		header(events.HeaderHop, "0/0")
	}
	m.send(r)
}

// repeatReplies repeats some replies: unchanged, later, for an earlier attempt, or for an attempt that never existed.
func (m *strayWriters) repeatReplies(ctx context.Context, records []events.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		if source, _ := r.Header(events.HeaderSource); source == parrotSource || m.rng.IntN(parrotShare) > 0 {
			continue
		}
		again := events.Record{Topic: r.Topic, Partition: -1, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			switch h.Key {
			case events.HeaderSource:
				h.Value = []byte(parrotSource)
			case events.HeaderRequest:
				h.Value = []byte(m.otherAttempt(string(h.Value)))
			case events.HeaderOutcome:
				if m.rng.IntN(3) == 0 {
					h.Value = []byte([]events.Outcome{events.Completed, events.Failed, events.Rejected}[m.rng.IntN(3)])
				}
			}
			again.Headers = append(again.Headers, h)
		}
		m.parroted.Add(1)
		late := time.Duration(m.rng.Int64N(int64(parrotLateMax)))
		time.AfterFunc(late, func() {
			if ctx.Err() == nil {
				m.send(again)
			}
		})
	}
}

// otherAttempt names the same attempt, the one before it, or one that never existed. It never names another current
// attempt, because a false reply to that would count.
func (m *strayWriters) otherAttempt(request string) string {
	task, ref, token, err := events.ParseRequest(request)
	if err != nil {
		return request
	}
	switch m.rng.IntN(3) {
	case 0:
		ref.Attempt += foreignAttempt
	case 1:
		ref.Attempt = max(1, ref.Attempt-1)
	}
	return events.RequestID(task, ref) + "/" + token
}
