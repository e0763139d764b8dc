package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// transaction is the speculative state of one transaction. It is applied if the transaction commits, and dropped
// otherwise.
type transaction struct {
	worker *worker
	out    []events.Record
	// decisionRecords is memory for the records of each decision. arena is memory for their values.
	decisionRecords []events.Record
	arena           *events.Arena
	env             Env // of the current decision
	decider         decider
	partitions      map[int32]*speculation
	counts          Committed
	began           time.Time
	// outputRanges map the output to the partitions of the inputs that caused it.
	outputRanges []outputRange
	// addedOffsets are the offsets below which records of added partitions were forwarded.
	addedOffsets inboxOffsets
	// definitionsRead reports that the definitions were read to their end after the inputs were polled.
	definitionsRead bool
	// tokensRefused counts replies with a missing or wrong token. tokenAlertAt is the time of an alert about them;
	// zero: none.
	tokensRefused int
	tokenAlertAt  time.Time
	// committed reports that the transaction is in the log, so the client no longer uses its memory.
	committed bool
}

// speculation is a partition's state within a transaction.
type speculation struct {
	partition        *partition
	state            events.PartitionState
	tasks            map[string]*events.Task
	stopsReported    map[string]bool // stopped tasks whose first recovery becomes a dead letter
	wroteSnapshot    bool            // the transaction contains the due part of its snapshot
	unslottedStarted int             // number of unslotted steps that were started
	submissions      submissionsRead
	forgot           bool // the transaction forgets ids
	commanded        bool // the transaction decides a command
}

func (w *worker) beginTransaction() *transaction {
	out, room := w.records, w.arena
	if w.records, w.arena = nil, nil; room == nil {
		room = &events.Arena{}
	}
	return &transaction{worker: w, out: out, arena: room, began: time.Now(), partitions: map[int32]*speculation{}, counts: Committed{
		Ended: map[events.TaskState]int{}, Ignored: map[Ignored]int{}, Deadletters: map[events.Reason]int{}}}
}

func (tx *transaction) speculate(p *partition) *speculation {
	s := tx.partitions[p.id]
	if s == nil {
		s = &speculation{partition: p, state: p.tasks.State(), tasks: map[string]*events.Task{}}
		tx.partitions[p.id] = s
		p.tasks.BeginLookups()
	}
	return s
}

// task returns a task that a decision may change. own reports that it is the result of an earlier decision of this
// transaction. Nothing else refers to such a task, so it isn't copied; a copy for each of a thousand replies would be
// slow. If the definition isn't loaded, the decision may be repeated, so the task is copied.
func (s *speculation) task(id string, defs Definitions) (t *events.Task, own bool) {
	t, own = s.tasks[id]
	if !own {
		t = s.partition.tasks.Task(id).Clone()
	}
	if t.Forgotten(s.state.Forgot) {
		return nil, false
	}
	if !own {
		return t, false
	}
	if _, ok := defs.Program(t.Workflow, t.Version); !ok {
		return t.Clone(), false
	}
	return t, true
}

// errStaleMetadata says that a decision used old metadata and has already changed the task.
var errStaleMetadata = errors.New("the request topics have changed")

// errOutOfTime says that deciding took too long. Fewer records are polled next.
var errOutOfTime = errors.New("the inputs take too long for one transaction")

// decideAll decides on all records. If decided is false and err is nil, the transaction must be rolled back, and the
// same records are read again. The causes are:
//
//   - The partition of a record was reassigned meanwhile.
//   - The finished tasks, the definitions, or the history of a processed task can't be looked up yet. The inbox of the
//     record is paused until then.
//   - A decision used old metadata of the request topics.
//   - A decision failed, and its task is stopped now.
//
// A commit includes the positions of all polled records, so none can be deferred alone. If deciding takes too long, the
// whole transaction is rolled back (errOutOfTime), and fewer records are polled next.
func (tx *transaction) decideAll(ctx context.Context, records []events.Record) (decided bool, err error) {
	defer func() { // before the commit, which may take long
		for _, s := range tx.partitions {
			s.partition.tasks.EndLookups()
		}
	}()
	for i := range records {
		if i > 0 && tx.outOfTime() {
			tx.worker.sizing.decrease(i, len(records))
			return false, errOutOfTime
		}
		p := tx.worker.partitions[records[i].Partition%tx.worker.cfg.Partitions]
		if p == nil || !p.ready() {
			return false, nil
		}
		switch err := tx.decideInput(ctx, p, &records[i]); {
		case errors.Is(err, errTasksNotLoaded):
			// The input may concern a finished task whose id isn't loaded yet. Its inbox is paused until it is.
			tx.worker.client.Pause(p.id, records[i].Topic, inboxgate.PausedForRestore, time.Time{})
			return false, nil
		case errors.Is(err, errDefinitionsUnread):
			tx.worker.client.Pause(p.id, records[i].Topic, inboxgate.PausedForDefinitions, tx.worker.definitionsRetryAt)
			return false, nil
		case errors.Is(err, errHistoryUnread):
			tx.worker.startReadingHistories(ctx, p, records[i:])
			return false, nil
		case errors.Is(err, errSignalEarly):
			tx.worker.client.Pause(p.id, records[i].Topic, inboxgate.PausedForRetry, time.Now().Add(earlySignalRetry))
			return false, nil
		case errors.Is(err, errStaleMetadata), errors.Is(err, errDecisionFailed):
			return false, nil
		case err != nil:
			return false, err
		}
		tx.attributeOutput(p.id)
	}
	return true, nil
}

// outOfTime reports whether deciding has used up its time.
func (tx *transaction) outOfTime() bool { return time.Since(tx.began) > tx.worker.cfg.decideWithin() }

// decideInput decides on one input.
func (tx *transaction) decideInput(ctx context.Context, p *partition, r *events.Record) error {
	w := tx.worker
	tx.counts.Inputs++
	if r.Partition >= w.cfg.Partitions {
		return tx.forwardFromAdded(r)
	}
	inbox, s := w.inboxes[r.Topic], tx.speculate(p)
	if r.Offset < s.state.ReflectedIn(inbox, w.topicIDs[inbox]) {
		tx.counts.Reflected++
		return nil
	}
	if inbox == events.Tasks {
		s.submissions.add(submissionsRead{to: r.Time, at: w.decisionTime(s)})
	}
	cause := events.Cause{Inbox: inbox, Partition: r.Partition, Offset: r.Offset}
	tx.claimPartition(s, cause)
	task, in, err := events.DecodeInput(inbox, r)
	if err != nil {
		unusable, ok := errors.AsType[*events.Unusable](err)
		if !ok {
			return err
		}
		if inbox == events.Tasks {
			tx.refuseUndecodedChild(r, unusable)
		}
		tx.deadletter(r, unusable)
		return nil
	}
	if task == "" {
		tx.forget(s, cause)
		return nil
	}
	switch where, u := targetPartition(r, task, w.cfg.Partitions); {
	case u != nil:
		tx.deadletter(r, u)
		return nil
	case where != r.Partition:
		tx.forward(r, task, where)
		return nil
	}
	if _, ok := s.tasks[task]; !ok && !p.tasks.Knows(task) {
		return errTasksNotLoaded
	}
	if why, stopped := p.whyStopped(task); stopped {
		return tx.refuseStopped(s, r, task, in, why)
	}
	if tx.isEarlySignal(s, r, task, in) {
		return errSignalEarly
	}
	d, err := tx.decide(ctx, s, task, func(t *events.Task, env *Env) Decision {
		tx.recordAgentReply(s, t, in, env.Now)
		return Decide(t, in, cause, env)
	})
	if err != nil {
		return err
	}
	if d.NeedHistory {
		return errHistoryUnread
	}
	tx.addDecision(s, r, in, d)
	s.commanded = s.commanded || inbox == events.Controls
	return tx.startQueued(ctx, s, r, cause)
}

// refuseStopped writes an input of a stopped task as a dead letter, to be redriven with a build that can read the
// task's history. A supervisor repeats a recovery until an event disarms the timer, which never happens here. So an
// owner writes only one dead letter of a recovery per task. A control is also answered.
func (tx *transaction) refuseStopped(s *speculation, r *events.Record, task string, in events.Input, why string) error {
	if _, asked := in.(*events.Recovery); asked {
		if _, told := s.partition.stopsReported[task]; told || s.stopsReported[task] {
			tx.counts.Ignored[IgnoredTaskStopped]++
			return nil
		}
		if s.stopsReported == nil {
			s.stopsReported = map[string]bool{}
		}
		s.stopsReported[task] = true
	}
	if x, commanded := in.(*events.Control); commanded {
		if t := s.partition.tasks.Task(task); t != nil { // otherwise the first event is unreadable, too, and there is no state to answer with
			a := &events.Answer{Task: task, Control: x.ID, State: t.State,
				Reason: shortened("the task is stopped, and the command is a dead letter: " + why)}
			tx.write(a.Record(tx.worker.cfg.Namespace, tx.worker.source))
		}
	}
	tx.refuseStoppedChild(in, why)
	tx.deadletter(r, &events.Unusable{Reason: events.ReasonTaskStopped, Detail: why})
	return nil
}

// recordAgentReply records that an agent is alive, if the reply has the token of the run's current attempt. The run may
// have ended. A reply without the token may come from another sender.
func (tx *transaction) recordAgentReply(s *speculation, t *events.Task, in events.Input, now time.Time) {
	r, ok := in.(*events.Reply)
	if !ok || t == nil || !t.Open() {
		return
	}
	if i, ok := t.Plan.Step(r.Ref.Step); ok && t.Plan.Has(i, r.Ref.Kind) && t.Plan.StepKindOf(i, r.Ref.Kind).CallsAgent() {
		run := t.Run(i, r.Ref.Kind)
		if run == nil || run.Attempt != r.Ref.Attempt || !r.TokenMatches(run.TokenHash) {
			return
		}
		agent, _ := t.Plan.Agent(i, r.Ref.Kind)
		s.partition.flow.recordReply(agent, now)
	}
}

// startQueued starts the queued steps that have a slot now.
func (tx *transaction) startQueued(ctx context.Context, s *speculation, r *events.Record, cause events.Cause) error {
	if err := tx.startUnslotted(ctx, s, r, cause); err != nil {
		return err
	}
	f := s.partition.flow
	if f == nil || f.queued == 0 {
		return nil
	}
	for _, a := range f.order {
		for n := 0; len(a.queue) > 0; n++ {
			now := tx.worker.decisionTime(s)
			x := f.nextToStart(a, now)
			if enough := n >= startsPerInputMax || tx.outOfTime(); x == nil || enough && (a.outstanding > 0 || a.timerIsNear(now, "")) {
				break
			}
			if _, stopped := s.partition.whyStopped(x.task); stopped {
				f.dropQueued(x)
				continue
			}
			d, err := tx.decide(ctx, s, x.task, func(t *events.Task, env *Env) Decision { return Start(t, x.step, x.kind, cause, env) })
			if err != nil {
				return err
			}
			tx.addDecision(s, r, nil, d)
			if x.state == runQueued { // the run can't start any more
				f.dropQueued(x)
			}
		}
	}
	return nil
}

// startUnslotted starts some of the steps that were queued for agents that no longer have a limit. The replies to them
// are the inputs that start the rest.
func (tx *transaction) startUnslotted(ctx context.Context, s *speculation, r *events.Record, cause events.Cause) error {
	all := s.partition.unslottedSteps
	for n := 0; n < startsPerInputMax && s.unslottedStarted < len(all) && (n == 0 || !tx.outOfTime()); n++ {
		x := all[s.unslottedStarted]
		s.unslottedStarted++
		if _, stopped := s.partition.whyStopped(x.task); stopped {
			continue
		}
		d, err := tx.decide(ctx, s, x.task, func(t *events.Task, env *Env) Decision { return Start(t, x.step, events.Do, cause, env) })
		if err != nil {
			return err
		}
		tx.addDecision(s, r, nil, d)
	}
	return nil
}

// decide calls Decide or Start, and repeats it if definitions or request topics were missing that may exist now.
func (tx *transaction) decide(ctx context.Context, s *speculation, task string, decide func(*events.Task, *Env) Decision) (Decision, error) {
	w := tx.worker
	env := &tx.env
	*env = w.decisionEnv(s)
	env.Records, env.Arena, env.decider = tx.decisionRecords, tx.arena, &tx.decider
	env.DefinitionsRead = tx.definitionsRead
	for {
		t, own := s.task(task, w.cfg.Catalog)
		d, err := w.guardDecision(s.partition, task, func() Decision { return decide(t, env) })
		if err != nil {
			return d, err
		}
		w.sizing.recordDecision(time.Now())
		switch {
		case d.NeedDefinitions:
			if err := tx.readDefinitions(ctx); err != nil {
				return d, err
			}
			env.DefinitionsRead = true
		case missesAgent(d) && w.requests.refreshMetadata(ctx, tx.began, env.Requests):
			if own { // the decision has changed the transaction's own task, so the whole transaction is repeated
				return d, errStaleMetadata
			}
			env.Requests, env.Leaderless = w.requests.partitions()
			env.Unwritable = w.requests.unwritable()
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

// addDecision adds a decision to the transaction. in is nil for a queued step.
func (tx *transaction) addDecision(s *speculation, r *events.Record, in events.Input, d Decision) {
	tx.updateFlow(s, r, in, d)
	for _, e := range d.Events {
		if err := s.state.Evolve(e); err != nil {
			panic("scheduler: " + err.Error()) // the decision is this scheduler's own
		}
		if _, ok := in.(*events.Recovery); ok {
			tx.counts.Recoveries++
			in = nil // so that it is counted once
		}
	}
	if len(d.Events) > 0 {
		s.tasks[d.Task.ID] = d.Task
		if d.Task.StatusSeq >= d.Events[0].Seq && (d.Task.State.Terminal() || d.Task.State == events.StateError) {
			tx.counts.Ended[d.Task.State]++
		}
	}
	if d.Ignored != "" {
		tx.counts.Ignored[d.Ignored]++
	}
	tx.out = append(tx.out, d.Records...)
	tx.decisionRecords = d.Records[:0]
	if d.Unusable != nil {
		tx.deadletter(r, d.Unusable)
	}
}

// updateFlow applies a decision to the partition's flow control.
func (tx *transaction) updateFlow(s *speculation, r *events.Record, in events.Input, d Decision) {
	f := s.partition.flow
	if f == nil {
		return
	}
	if x, ok := in.(*events.Recovery); ok && d.Ignored == IgnoredQueued {
		f.retryAsked(d.Task, events.Slot{Step: x.Step, Kind: x.Kind}, tx.worker.decisionTime(s))
	}
	if len(d.Events) == 0 {
		return
	}
	for _, e := range d.Events {
		f.observe(d.Task, e, writtenBy(in, r, e.At))
	}
	f.update(d.Task, d.Events, d.Events[len(d.Events)-1].At)
}

// writtenBy returns when a reply was written, at most at. For other inputs it returns at. The broker's clock may be
// ahead of the clock that at was read from.
func writtenBy(in events.Input, r *events.Record, at time.Time) time.Time {
	if _, ok := in.(*events.Reply); ok && !r.Time.IsZero() && r.Time.Before(at) {
		return r.Time
	}
	return at
}

func (tx *transaction) write(r events.Record) { tx.out = append(tx.out, r) }

// reusedRecordsMax is the largest number of records whose memory is reused. It is above what one poll usually causes.
const reusedRecordsMax = 1 << 14

// releaseMemory passes the memory of the records to the next transaction, since the client no longer uses it. The arena
// is reused only after a commit: the client may still send records of a transaction that was rolled back.
func (tx *transaction) releaseMemory() {
	if tx.committed {
		tx.arena.Reset()
		tx.worker.arena = tx.arena
	}
	tx.arena = nil
	if cap(tx.out) > reusedRecordsMax {
		return
	}
	clear(tx.out)
	tx.worker.records = tx.out[:0]
	tx.out = nil
}

func (tx *transaction) deadletter(r *events.Record, u *events.Unusable) {
	tx.counts.Deadletters[u.Reason]++
	tx.write(events.Deadletter(tx.worker.cfg.Namespace, tx.worker.source, r, u))
	tx.alertBadToken(r, u)
}

// claimPartition writes the claim of a new owner in its first transaction in a partition.
func (tx *transaction) claimPartition(s *speculation, cause events.Cause) {
	if s.partition.claimed || s.state.Owner == tx.worker.owner && s.state.Epoch == s.partition.claimEpoch {
		return
	}
	epoch := s.state.Epoch + 1
	e := &events.Event{Seq: epoch, Epoch: epoch, At: tx.worker.decisionTime(s), Cause: cause, Fact: &events.PartitionClaimed{Owner: tx.worker.owner, TopicIDs: tx.worker.topicIDs}}
	value := e.Seal(nil)
	if err := s.state.Evolve(e); err != nil {
		panic("scheduler: " + err.Error())
	}
	s.partition.claimEpoch = epoch
	tx.write(e.Record(tx.worker.cfg.Namespace, tx.worker.source, s.partition.id, value))
}

// addSnapshots adds the due parts of the snapshots of partitions with new events.
func (tx *transaction) addSnapshots() {
	topic, decided := tx.worker.cfg.Namespace.Events(), tx.out
	bytes := map[int32]int{}
	for i := range decided {
		if decided[i].Topic == topic {
			bytes[decided[i].Partition] += len(decided[i].Value)
		}
	}
	for id, n := range bytes {
		tx.counts.EventBytes += n
		if tx.partitions[id].forgot {
			continue // the snapshot begins with the state before the transaction, and no ids may be forgotten while it is written
		}
		rs, err := tx.partitions[id].partition.tasks.Snapshot(tx.worker.source, n)
		if err != nil {
			tx.worker.cfg.Listener.SnapshotFailed(id, err)
			continue
		}
		tx.partitions[id].wroteSnapshot = true
		for i := range rs {
			tx.counts.SnapshotBytes += len(rs[i].Value)
			if string(rs[i].Key) == events.SnapshotMetaKey {
				tx.counts.Snapshots++
			}
		}
		tx.out = append(tx.out, rs...)
	}
}

// rollback restores flow control and the agents' health after the transaction was rolled back. No other state has
// changed.
func (tx *transaction) rollback() {
	tx.worker.cfg.Listener.Aborted()
	tx.worker.health.rollback()
	for _, s := range tx.partitions {
		s.partition.confirmation.checkAll = true
		if s.partition.flow == nil {
			continue
		}
		for id, made := range s.tasks {
			t := s.partition.tasks.Task(id)
			if t == nil || t.Plan == nil { // the transaction created or reopened it: none of its steps runs or waits
				t = &events.Task{ID: id, State: events.StateCancelled, Plan: made.Plan}
			}
			if t.Plan != made.Plan { // it was migrated
				s.partition.flow.dropTask(id)
			}
			s.partition.flow.refreshTask(t, tx.worker.decisionTime(s), true)
		}
	}
}

// accept applies the speculative state after the commit.
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
	tx.acceptTokenRefusals()
	for id, s := range tx.partitions {
		delete(tx.worker.refusedInRow, id)
		tx.worker.tooLarge.removeDecided(s.tasks)
		s.partition.addStopsReported(s.stopsReported)
		s.partition.dropUnslotted(s.unslottedStarted)
		if s.commanded {
			clear(s.partition.histories) // they were read for the first commands of the inbox
		}
		at, wrote := next[id]
		if !wrote {
			continue
		}
		s.partition.claimed = true
		if s.wroteSnapshot {
			s.partition.tasks.SnapshotWritten()
		}
		s.partition.accept(s, at)
	}
	tx.worker.cfg.flushed.addForwarded(tx.addedOffsets, tx.worker.topicIDs)
	tx.counts.Records = len(tx.out)
	tx.worker.cfg.Listener.Committed(tx.counts)
}
