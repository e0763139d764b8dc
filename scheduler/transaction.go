package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// transaction is the speculative state of one transaction: what becomes true if
// it commits. It is dropped if it doesn't.
type transaction struct {
	worker *worker
	out    []events.Record
	// decided is memory for the records of one decision after the other, room for what
	// they are made of.
	decided []events.Record
	room    *events.Arena
	env     Env // of the decision that is made
	decider decider
	parts   map[int32]*speculation
	counts  txCounts
	began   time.Time
	// outputs say of which partition's inputs the output is.
	outputs []outputOf
	// brought is below which offsets partitions that were added to inboxes are done with.
	brought inboxOffsets
	// definitionsRead: to their end, since the inputs were polled.
	definitionsRead bool
	// forged are the replies that are refused for their token; alerted is when operators are told of them.
	forged  int
	alerted time.Time
	// committed: the log has all of it, and its client nothing more.
	committed bool
}

// speculation is a partition's state within a transaction.
type speculation struct {
	partition *partition
	state     events.PartitionState
	tasks     map[string]*events.Task
	told      map[string]bool // stopped tasks of which it writes the first recovery's dead letter
	snapshot  bool            // the transaction writes of its snapshot what is due
	started   int             // of the partition's unslotted steps
}

// txCounts is what a listener is told once the transaction is committed.
type txCounts struct {
	inputs, reflected, forwarded int
	ended                        map[events.TaskState]int
	ignored                      map[Ignored]int
	deadletters                  map[events.Reason]int
	recoveries                   int
	eventBytes                   int
	snapshotBytes, snapshots     int
}

func (l *worker) begin() *transaction {
	out, room := l.records, l.room
	if l.records, l.room = nil, nil; room == nil {
		room = &events.Arena{}
	}
	return &transaction{worker: l, out: out, room: room, began: time.Now(), parts: map[int32]*speculation{}, counts: txCounts{
		ended: map[events.TaskState]int{}, ignored: map[Ignored]int{}, deadletters: map[events.Reason]int{}}}
}

func (tx *transaction) speculate(p *partition) *speculation {
	s := tx.parts[p.id]
	if s == nil {
		s = &speculation{partition: p, state: p.tasks.State(), tasks: map[string]*events.Task{}}
		tx.parts[p.id] = s
		p.tasks.BeginLookups()
	}
	return s
}

// task returns a task that a decision may change: a copy, or what this transaction
// made of it before, which nobody else has (own): a copy for each of a thousand
// steps' replies takes time, though it shares what isn't changed. Where the decision
// may have to be made again, since its definition hasn't been read, it is a copy.
func (s *speculation) task(id string, defs Definitions) (t *events.Task, own bool, err error) {
	t, own = s.tasks[id]
	if !own {
		t, err = s.partition.tasks.Task(id)
		return t.Clone(), false, err
	}
	if _, ok := defs.Program(t.Workflow, t.Version); !ok {
		return t.Clone(), false, nil
	}
	return t, true, nil
}

// errStale: a decision rested on old metadata, and changed the task on the way.
var errStale = errors.New("the request topics were others")

// errLong: deciding took too long, and the rest is left to another transaction.
var errLong = errors.New("the inputs take too long for one transaction")

// takeAll decides on all that was polled. decided is false, and err nil, if that can't be done
// now: the transaction is to be rolled back, and the same records come again. That is so where
//   - a record's partition went while it was on its way;
//   - the finished tasks that it may be about, or the definitions, can't be looked up yet: its
//     inbox is paused until they can;
//   - a decision rested on request topics as they were before.
//
// A commit has the positions of all that was polled, so a part can't be given back. What takes
// too long is rolled back whole (errLong), and fewer records are polled the next time.
func (tx *transaction) takeAll(ctx context.Context, records []events.Record) (decided bool, err error) {
	defer func() { // before the commit, which may take long
		for _, s := range tx.parts {
			s.partition.tasks.EndLookups()
		}
	}()
	for i := range records {
		if i > 0 && tx.long() {
			tx.worker.sizing.decrease(i, len(records))
			return false, errLong
		}
		p := tx.worker.parts[records[i].Partition%tx.worker.cfg.Partitions]
		if p == nil || !p.ready() {
			return false, nil
		}
		switch err := tx.take(ctx, p, &records[i]); {
		case errors.Is(err, errNotLoaded):
			// What it is about may be a finished task whose id is still to come.
			// Its inbox waits for that, in this partition.
			tx.worker.log.Pause(p.id, records[i].Topic, inboxgate.PausedForRestore, time.Time{})
			return false, nil
		case errors.Is(err, errDefinitionsUnread):
			tx.worker.log.Pause(p.id, records[i].Topic, inboxgate.PausedForDefinitions, tx.worker.definitionsFrom)
			return false, nil
		case errors.Is(err, errStale):
			return false, nil
		case err != nil:
			return false, err
		}
		tx.attributeOutput(p.id)
	}
	return true, nil
}

// long reports whether deciding has taken as long as it may.
func (tx *transaction) long() bool { return time.Since(tx.began) > tx.worker.cfg.decideMost() }

// take processes one input.
func (tx *transaction) take(ctx context.Context, p *partition, r *events.Record) error {
	l := tx.worker
	tx.counts.inputs++
	if r.Partition >= l.cfg.Partitions {
		return tx.bring(r)
	}
	inbox, s := l.inboxes[r.Topic], tx.speculate(p)
	if r.Offset < s.state.ReflectedIn(inbox, l.topicIDs[inbox]) {
		tx.counts.reflected++
		return nil
	}
	cause := events.Cause{Inbox: inbox, Partition: r.Partition, Offset: r.Offset}
	tx.claim(s, cause)
	task, in, err := events.DecodeInput(inbox, r)
	if err != nil {
		unusable, ok := errors.AsType[*events.Unusable](err)
		if !ok {
			return err
		}
		tx.deadletter(r, unusable)
		return nil
	}
	switch where, u := place(r, task, l.cfg.Partitions); {
	case u != nil:
		tx.deadletter(r, u)
		return nil
	case where != r.Partition:
		tx.forward(r, task, where)
		return nil
	}
	if _, ok := s.tasks[task]; !ok && !p.tasks.Knows(task) {
		return errNotLoaded
	}
	if why, stopped := p.tasks.WhyStopped(task); stopped {
		return tx.refuse(s, r, task, in, why)
	}
	d, err := tx.decide(ctx, s, task, func(t *events.Task, env *Env) Decision {
		tx.hear(s, t, in, env.Now)
		return Decide(t, in, cause, env)
	})
	if err != nil {
		return err
	}
	tx.add(s, r, in, d)
	return tx.startQueued(ctx, s, r, cause)
}

// refuse is for an input of a stopped task: a dead letter, for whoever has a build that can read
// the task's history. A supervisor asks for a recovery until an event disarms the timer, and
// none will: only the first that an owner of the partition takes is told of. Who commands
// the task waits for an answer, and has it.
func (tx *transaction) refuse(s *speculation, r *events.Record, task string, in events.Input, why string) error {
	if _, asked := in.(*events.Recovery); asked {
		if _, told := s.partition.told[task]; told || s.told[task] {
			tx.counts.ignored[IgnoredTaskStopped]++
			return nil
		}
		if s.told == nil {
			s.told = map[string]bool{}
		}
		s.told[task] = true
	}
	if x, commanded := in.(*events.Control); commanded {
		t, err := s.partition.tasks.Task(task)
		if err != nil {
			return err
		}
		if t != nil { // else not even its first event can be read: there is no state to tell
			a := &events.Answer{Task: task, Control: x.ID, State: t.State,
				Reason: shortened("its history can't be used by this scheduler (" + why + "), so nothing is decided about it; the command is a dead letter")}
			tx.write(a.Record(tx.worker.cfg.Namespace, tx.worker.source))
		}
	}
	tx.deadletter(r, &events.Unusable{Reason: events.ReasonTaskStopped, Detail: why})
	return nil
}

// hear: a reply with the token of the last attempt that it can be about says that its agent is there, also where that
// is over. Who hasn't the token needn't be the agent.
func (tx *transaction) hear(s *speculation, t *events.Task, in events.Input, now time.Time) {
	r, ok := in.(*events.Reply)
	if !ok || t == nil || !t.Open() {
		return
	}
	if i, ok := t.Plan.Step(r.Ref.Step); ok && (r.Ref.Kind == events.Do || t.Plan.Steps[i].Undo != nil) {
		run := t.Run(i, r.Ref.Kind)
		if run == nil || run.Attempt != r.Ref.Attempt || !r.TokenMatches(run.TokenHash) {
			return
		}
		agent, _ := t.Plan.Agent(i, r.Ref.Kind)
		s.partition.flow.recordReply(agent, now)
	}
}

// startQueued starts the steps whose turn it is, now that an input was decided on.
func (tx *transaction) startQueued(ctx context.Context, s *speculation, r *events.Record, cause events.Cause) error {
	if err := tx.startInherited(ctx, s, r, cause); err != nil {
		return err
	}
	f := s.partition.flow
	if f == nil || f.queued == 0 {
		return nil
	}
	for _, a := range f.order {
		for n := 0; len(a.queue) > 0; n++ {
			now := tx.worker.at(s)
			x := f.nextToStart(a, now)
			if enough := n >= startsPerInputMax || tx.long(); x == nil || enough && (a.outstanding > 0 || a.timerIsNear(now, "")) {
				break
			}
			if _, stopped := s.partition.tasks.WhyStopped(x.task); stopped {
				f.dropQueued(x)
				continue
			}
			d, err := tx.decide(ctx, s, x.task, func(t *events.Task, env *Env) Decision { return Start(t, x.step, x.kind, cause, env) })
			if err != nil {
				return err
			}
			tx.add(s, r, nil, d)
			if x.state == runQueued { // nothing came of it
				f.dropQueued(x)
			}
		}
	}
	return nil
}

// startInherited starts some of what waited for agents that nobody counts requests of any
// more. Their replies are the inputs that start the rest.
func (tx *transaction) startInherited(ctx context.Context, s *speculation, r *events.Record, cause events.Cause) error {
	all := s.partition.unslottedSteps
	for n := 0; n < startsPerInputMax && s.started < len(all) && (n == 0 || !tx.long()); n++ {
		x := all[s.started]
		s.started++
		if _, stopped := s.partition.tasks.WhyStopped(x.task); stopped {
			continue
		}
		d, err := tx.decide(ctx, s, x.task, func(t *events.Task, env *Env) Decision { return Start(t, x.step, events.Do, cause, env) })
		if err != nil {
			return err
		}
		tx.add(s, r, nil, d)
	}
	return nil
}

// decide asks Decide or Start, and again if it needs definitions or request topics
// that may have come since they were last read.
func (tx *transaction) decide(ctx context.Context, s *speculation, task string, decide func(*events.Task, *Env) Decision) (Decision, error) {
	l := tx.worker
	env := &tx.env
	*env = l.env(s)
	env.Records, env.Room, env.decider = tx.decided, tx.room, &tx.decider
	env.DefinitionsRead = tx.definitionsRead
	for {
		t, own, err := s.task(task, l.cfg.Catalog)
		if err != nil {
			return Decision{}, err
		}
		d := decide(t, env)
		l.sizing.decided(time.Now())
		switch {
		case d.NeedDefinitions:
			if err := tx.readDefinitions(ctx); err != nil {
				return d, err
			}
			env.DefinitionsRead = true
		case missesAgent(d) && l.requests.refresh(ctx, tx.began, env.Requests):
			if own { // the whole transaction is made again
				return d, errStale
			}
			env.Requests, env.Leaderless = l.requests.partitions()
			env.Barred = l.requests.whyBarred()
		default:
			return d, nil
		}
	}
}

func missesAgent(d Decision) bool {
	for _, e := range d.Events {
		if f, ok := e.Fact.(*events.AttemptFailed); ok && f.Error != nil && f.Error.Code == events.CodeNoSuchAgent {
			return true
		}
	}
	return false
}

// add takes a decision into the transaction. in is nil if it is about a step that
// waited.
func (tx *transaction) add(s *speculation, r *events.Record, in events.Input, d Decision) {
	tx.follow(s, r, in, d)
	for _, e := range d.Events {
		if err := s.state.Evolve(e); err != nil {
			panic("scheduler: " + err.Error()) // a decision of ours
		}
		if _, ok := in.(*events.Recovery); ok {
			tx.counts.recoveries++
			in = nil // counted once
		}
	}
	if len(d.Events) > 0 {
		s.tasks[d.Task.ID] = d.Task
		if d.Task.StatusSeq >= d.Events[0].Seq && (d.Task.State.Terminal() || d.Task.State == events.StateError) {
			tx.counts.ended[d.Task.State]++
		}
	}
	if d.Ignored != "" {
		tx.counts.ignored[d.Ignored]++
	}
	tx.out = append(tx.out, d.Records...)
	tx.decided = d.Records[:0]
	if d.Unusable != nil {
		tx.deadletter(r, d.Unusable)
	}
}

// follow takes a decision over into the partition's flow.
func (tx *transaction) follow(s *speculation, r *events.Record, in events.Input, d Decision) {
	f := s.partition.flow
	if f == nil {
		return
	}
	if x, ok := in.(*events.Recovery); ok && d.Ignored == IgnoredQueued {
		f.retryAsked(d.Task, events.Slot{Step: x.Step, Kind: x.Kind}, tx.worker.at(s))
	}
	if len(d.Events) == 0 {
		return
	}
	for _, e := range d.Events {
		f.observe(d.Task, e, writtenBy(in, r, e.At))
	}
	f.update(d.Task, d.Events, d.Events[len(d.Events)-1].At)
}

// writtenBy is when an input that came in a record was written, if it is a reply. It is
// decided on at an instant, by a clock that the broker's may be ahead of.
func writtenBy(in events.Input, r *events.Record, at time.Time) time.Time {
	if _, ok := in.(*events.Reply); ok && !r.Time.IsZero() && r.Time.Before(at) {
		return r.Time
	}
	return at
}

func (tx *transaction) write(r events.Record) { tx.out = append(tx.out, r) }

// recordsKept is for how many records of a transaction a worker keeps the room for
// the next: above what is polled at once, and what usually follows from that.
const recordsKept = 1 << 14

// end gives the memory of the transaction's records to the next one. The log has let
// go of them when it says what became of the transaction. What they are made of is its
// client's for longer if it was rolled back: that may still be about to send it.
func (tx *transaction) end() {
	if tx.committed {
		tx.room.Reset()
		tx.worker.room = tx.room
	}
	tx.room = nil
	if cap(tx.out) > recordsKept {
		return
	}
	clear(tx.out)
	tx.worker.records = tx.out[:0]
	tx.out = nil
}

func (tx *transaction) deadletter(r *events.Record, u *events.Unusable) {
	tx.counts.deadletters[u.Reason]++
	tx.write(events.Deadletter(tx.worker.cfg.Namespace, tx.worker.source, r, u))
	tx.refusedToken(r, u)
}

// claim begins an owner's first transaction in a partition.
func (tx *transaction) claim(s *speculation, cause events.Cause) {
	if s.partition.claimed || s.state.Owner == tx.worker.owner && s.state.Epoch == s.partition.claiming {
		return
	}
	epoch := s.state.Epoch + 1
	e := &events.Event{Seq: epoch, Epoch: epoch, At: tx.worker.at(s), Cause: cause, Fact: &events.PartitionClaimed{Owner: tx.worker.owner, TopicIDs: tx.worker.topicIDs}}
	value := e.Seal(nil)
	if err := s.state.Evolve(e); err != nil {
		panic("scheduler: " + err.Error())
	}
	s.partition.claiming = epoch
	tx.write(e.Record(tx.worker.cfg.Namespace, tx.worker.source, s.partition.id, value))
}

// snapshots adds what is due of the snapshots of the partitions that the
// transaction writes events of.
func (tx *transaction) snapshots() {
	topic, decided := tx.worker.cfg.Namespace.Events(), tx.out
	bytes := map[int32]int{}
	for i := range decided {
		if decided[i].Topic == topic {
			bytes[decided[i].Partition] += len(decided[i].Value)
		}
	}
	for id, n := range bytes {
		tx.counts.eventBytes += n
		rs, err := tx.parts[id].partition.tasks.Snapshot(tx.worker.source, n)
		if err != nil {
			tx.worker.cfg.Listener.snapshotFailed(id, err)
			continue
		}
		tx.parts[id].snapshot = true
		for i := range rs {
			tx.counts.snapshotBytes += len(rs[i].Value)
			if string(rs[i].Key) == events.SnapshotMetaKey {
				tx.counts.snapshots++
			}
		}
		tx.out = append(tx.out, rs...)
	}
}

// forget: the transaction was rolled back. What the worker knows of its agents is
// again what it was; the rest of the state was never touched.
func (tx *transaction) forget() error {
	tx.worker.cfg.Listener.aborted()
	tx.worker.health.rollback()
	for _, s := range tx.parts {
		s.partition.confirmation.suspect = true
		if s.partition.flow == nil {
			continue
		}
		for id, made := range s.tasks {
			t, err := s.partition.tasks.Task(id)
			if err != nil {
				return err
			}
			if t == nil { // it wasn't there: nothing of it runs, or waits
				t = &events.Task{ID: id, State: events.StateCancelled, Plan: made.Plan}
			}
			s.partition.flow.refreshTask(t, tx.worker.at(s), true)
		}
	}
	return nil
}

// accept makes the speculative state the partitions' own, after the commit.
func (tx *transaction) accept() {
	next := map[int32]int64{}
	topic := tx.worker.cfg.Namespace.Events()
	for i := range tx.out {
		if r := &tx.out[i]; r.Topic == topic && r.Offset >= next[r.Partition] {
			next[r.Partition] = r.Offset + 1
		}
	}
	tx.worker.refusingSince = time.Time{}
	tx.worker.health.commit()
	tx.acceptForgeries()
	for id, s := range tx.parts {
		delete(tx.worker.refusals, id)
		tx.worker.tooLarge.accepted(s.tasks)
		s.partition.tell(s.told)
		s.partition.started(s.started)
		at, wrote := next[id]
		if !wrote {
			continue
		}
		s.partition.claimed = true
		if s.snapshot {
			s.partition.tasks.SnapshotWritten()
		}
		s.partition.accept(s, at)
	}
	tx.worker.cfg.flushed.done(tx.brought, tx.worker.topicIDs)
	tx.worker.cfg.Listener.committed(tx)
}
