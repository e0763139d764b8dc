package bench

import (
	"bytes"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// samplesMost bounds the sampled tasks. It is large enough that neighbours in a batch differ as they do in
// Waybill.
const samplesMost = 512

// newSampler samples the end of the warm-up, or of all tasks without one: by then every role is busy.
func newSampler(o *orders, l *Load) *sampler {
	end := l.Warmup
	if end == 0 {
		end = l.all()
	}
	count := min(samplesMost, end)
	return &sampler{orders: o, load: l, from: end - count, count: count, tasks: make([][]events.Record, count)}
}

// script is the records of one task by their cause: the submission leads to the outputs of stage 0, reply i to
// those of stage i+1.
type script struct {
	submission *kgo.Record
	replies    []*kgo.Record
	stages     [][]*kgo.Record
	records    int

	task   []byte // as the scheduler's store has it once it has ended
	timers []byte // as the supervisor's store has them while the task is open
}

// buildScripts creates scripts from the sampled tasks. It leaves out tasks of the shares, and tasks whose
// transaction was aborted once, since their records were written twice.
func (s *sampler) buildScripts() ([]*script, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var scripts []*script
	var last error
	for i, rs := range s.tasks {
		if s.load.kindOf(s.from+i) != plain {
			continue
		}
		sc, err := newScript(s.ns, rs, s.load.Steps)
		if err != nil {
			last = err
			continue
		}
		scripts = append(scripts, sc)
	}
	if len(scripts) == 0 {
		return nil, fmt.Errorf("none of %d sampled tasks can be replayed (the last: %w); sample more with a longer warm-up", len(s.tasks), last)
	}
	return scripts, nil
}

// newScript orders the records of a task.
func newScript(ns events.Namespace, rs []events.Record, steps int) (*script, error) {
	b := &scriptBuilder{ns: ns, script: &script{replies: make([]*kgo.Record, steps), stages: make([][]*kgo.Record, steps+1)},
		stageOf: map[string]int{}, seen: map[string]bool{}}
	// Replies are numbered by their step, which identifies what follows them.
	for i := range rs {
		if err := b.add(&rs[i]); err != nil {
			return nil, err
		}
	}
	sc := b.script
	if sc.submission == nil || b.replied != steps || b.fold.Task == nil || !b.fold.Task.State.Terminal() {
		return nil, fmt.Errorf("%d records are not a complete task", len(rs))
	}
	sc.task, sc.timers, sc.records = b.fold.Task.Encode(), b.timers, len(rs)
	return sc, nil
}

// scriptBuilder takes the records of a task in the order in which they were written.
type scriptBuilder struct {
	ns      events.Namespace
	script  *script
	stageOf map[string]int // of a cause
	stage   int            // of the event before: requests go with it
	seen    map[string]bool
	replied int
	fold    events.Fold
	armed   events.Timers
	timers  []byte
}

func (b *scriptBuilder) add(r *events.Record) error {
	id, _ := r.Header(events.HeaderID)
	if b.seen[r.Topic+id] {
		return fmt.Errorf("%s %s was written twice", r.Topic, id)
	}
	b.seen[r.Topic+id] = true
	switch r.Topic {
	case b.ns.Inbox(events.Tasks):
		b.script.submission = playedRecord(r, 0)
		return nil
	case b.ns.Inbox(events.Replies):
		return b.reply(r)
	case b.ns.Events():
		if err := b.event(r); err != nil {
			return err
		}
		b.output(r, 0)
		return nil
	}
	step, err := requestStep(r)
	if err != nil {
		return err
	}
	b.output(r, step)
	return nil
}

func (b *scriptBuilder) output(r *events.Record, number int) {
	b.script.stages[b.stage] = append(b.script.stages[b.stage], playedRecord(r, number))
}

func (b *scriptBuilder) reply(r *events.Record) error {
	step, err := requestStep(r)
	if err != nil {
		return err
	}
	b.script.replies[step] = playedRecord(r, step)
	b.replied++
	return nil
}

// requestStep returns the number of the step of a request or reply.
func requestStep(r *events.Record) (int, error) {
	id, _ := r.Header(events.HeaderRequest)
	_, ref, _, err := events.ParseRequest(id)
	if err != nil {
		return 0, err
	}
	step, ok := stepOf(ref.Step)
	if !ok || ref.Attempt != 1 || ref.Kind != events.Do {
		return 0, fmt.Errorf("%s %s belongs to no first attempt", r.Topic, id)
	}
	return step, nil
}

// event finds the stage of an event: that of its cause, which is the submission, or the reply that completed a
// step.
func (b *scriptBuilder) event(r *events.Record) error {
	ceType, _ := r.Header(events.HeaderType)
	e, err := b.fold.Add(r)
	if err != nil {
		return err
	}
	b.armed.Evolve(e)
	if t := b.armed.Encode(); len(t) > len(b.timers) {
		b.timers = t
	}
	cause := e.Cause.String()
	if _, known := b.stageOf[cause]; !known {
		if f, ok := e.Fact.(*events.AttemptCompleted); ok {
			step, _ := stepOf(f.Step)
			b.stageOf[cause] = step + 1
		} else if e.Cause.Inbox == events.Tasks {
			b.stageOf[cause] = 0
		} else {
			return fmt.Errorf("%s led to %s", cause, ceType)
		}
	}
	b.stage = b.stageOf[cause]
	return nil
}

// numberDigits is how many digits of the step's number are written into the ce_id of a replayed record, so that
// its reader knows what follows.
const numberDigits = 3

// playedRecord is a record as the floor writes it, of the same sizes and headers.
func playedRecord(r *events.Record, number int) *kgo.Record {
	out := &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: make([]kgo.RecordHeader, len(r.Headers))}
	for i, h := range r.Headers {
		out.Headers[i] = kgo.RecordHeader(h)
		if h.Key == events.HeaderID {
			id := bytes.Clone(h.Value)
			copy(id, fmt.Sprintf("%0*d", numberDigits, number))
			out.Headers[i].Value = id
		}
	}
	return out
}

// numberOf returns the number in a replayed record.
func numberOf(r *kgo.Record) int {
	for i := range r.Headers {
		if r.Headers[i].Key != events.HeaderID {
			continue
		}
		n := 0
		for _, c := range r.Headers[i].Value[:numberDigits] {
			n = 10*n + int(c-'0')
		}
		return n
	}
	return 0
}
