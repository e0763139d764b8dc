package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
)

// saveEvery is how often a worker saves its partitions. The log is authoritative; the store only makes restarts faster.
const saveEvery = time.Second

// The changed bytes of a partition (Tasks.ChangedBytes) at which a worker saves it before it is due by time. During
// operation the bound is low, since a crash replays what isn't saved. During a restore it is high, since a task that
// changes often is then written less often, and most tasks of a long history finish within one batch; it also bounds the
// memory of the restore besides the open tasks. Measured with 10,000 open tasks: an event takes 17 us of CPU at 1 MiB and
// 4 us at 64 MiB; the fold alone takes 3 us.
const (
	SaveBytes        = 1 << 20
	RestoreSaveBytes = 64 << 20
)

// snapshotsRetryAfter is how long no snapshot is written after the cluster refused one. Tasks aren't affected.
const snapshotsRetryAfter = time.Minute

// worker is one goroutine, one group member and one transactional producer. The goroutine of run owns all fields.
type worker struct {
	cfg             *Config
	owner           string
	source          string
	client          Client
	inboxes         map[string]events.Inbox
	topicIDs        events.TopicIDs // of the inboxes, as the client reads them
	partitions      map[int32]*partition
	restoreResults  chan restoreResult
	loadResults     chan loadResult
	historyResults  chan historyResult
	background      sync.WaitGroup
	requests        *requestTopics
	health          *agentHealth
	admissionClosed bool // the load is too high, so the tasks inbox is paused (admission.go)
	savedAt         time.Time
	refusedInRow    map[int32]int // consecutive refusals of a partition's output
	refusingSince   time.Time     // start of the time in which the cluster has refused everything; zero: it accepts output
	tokenRefusals   tokenRefusals
	tooLarge        tooLargeRequests
	// records is memory for the next transaction's records, arena for their values.
	records []events.Record
	arena   *events.Arena

	snapshotsResumeAt time.Time // no snapshot is written before this instant

	confirmAnswers   chan []confirmAnswer
	confirming       bool // a check is running
	confirmStartedAt time.Time
	sizing           transactionSizing
	// definitionsRetryAt is set if the last read of the definitions failed. The next read is not before this instant.
	definitionsRetryAt time.Time
}

func newWorker(cfg *Config, owner string, client Client, requests *requestTopics) *worker {
	w := &worker{cfg: cfg, owner: owner, source: string(cfg.Namespace) + "scheduler/" + owner, client: client, requests: requests, health: newAgentHealth(),
		inboxes: map[string]events.Inbox{}, partitions: map[int32]*partition{}, refusedInRow: map[int32]int{}, tooLarge: tooLargeRequests{}, confirmAnswers: make(chan []confirmAnswer, 1), restoreResults: make(chan restoreResult, cfg.Partitions), loadResults: make(chan loadResult, cfg.Partitions), historyResults: make(chan historyResult, cfg.Partitions)}
	w.sizing.began = time.Now()
	for i, topic := range cfg.Namespace.InboxTopics() {
		w.inboxes[topic] = events.Inbox(i)
		w.topicIDs[i] = client.TopicID(topic)
	}
	return w
}

// run is the worker's loop. It returns nil when ctx ends, or an error that requires a new client.
func (w *worker) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer w.close(cancel)
	for {
		if err := w.runOnce(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// close drops all partitions. The caller of newWorker closes the client.
func (w *worker) close(cancel context.CancelFunc) {
	cancel()
	for _, p := range w.partitions {
		w.dropPartition(p)
	}
	w.cfg.Listener.Agents(w.owner, w.agentFlows())
	if w.admissionClosed {
		w.cfg.Listener.Admission(w.owner, true, 0, nil)
	}
	w.background.Wait()
	for {
		select {
		case r := <-w.restoreResults:
			r.discard()
		default:
			return
		}
	}
}

// runOnce is one iteration: reconcile, poll, decide, commit, accept.
func (w *worker) runOnce(ctx context.Context) error {
	if err := w.reconcile(ctx); err != nil {
		return err
	}
	if err := w.handleConfirmAnswers(ctx); err != nil {
		return err
	}
	w.startConfirm(ctx, time.Now())
	w.updateAdmission()
	w.client.PollAtMost(w.sizing.pollMax)
	records, err := w.client.Poll(ctx)
	if err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	if err := w.reconcile(ctx); err != nil {
		return err
	}
	if len(records) == 0 {
		w.save(time.Now())
		return nil
	}
	tx := w.beginTransaction()
	defer tx.releaseMemory()
	decided, err := tx.decideAll(ctx, records)
	switch {
	case errors.Is(err, errOutOfTime):
		return w.abort(ctx, tx)
	case err != nil:
		return err
	case !decided:
		w.sizing.rolledBack = true
		return w.abort(ctx, tx)
	}
	if nobody := tx.findLeaderless(); nobody != nil {
		w.sizing.rolledBack = true
		if err := w.abort(ctx, tx); err != nil {
			return err
		}
		return w.onRefused(ctx, tx, nobody)
	}
	took := time.Since(tx.began)
	if err := w.commit(ctx, tx); err != nil {
		return err
	}
	if w.sizing.rolledBack = !tx.committed; tx.committed {
		w.sizing.increase(took, w.cfg.decideWithin())
	}
	return nil
}

// errTasksNotLoaded says that it is unknown whether an input's task exists.
var errTasksNotLoaded = errors.New("finished tasks are still being loaded")

func (w *worker) commit(ctx context.Context, tx *transaction) error {
	start := time.Now()
	decided := len(tx.out)
	if start.After(w.snapshotsResumeAt) {
		tx.addSnapshots()
	}
	committed, err := w.client.Commit(ctx, tx.out)
	var refused refusedRecord
	switch {
	case errors.As(err, &refused) && refused.RecordIndex() >= decided:
		// The worker continues without snapshots for a while.
		w.cfg.Listener.RecordRefused(w.cfg.Namespace.Snapshots(), refused)
		w.snapshotsResumeAt = start.Add(snapshotsRetryAfter)
		tx.rollback()
		return nil
	case errors.As(err, &refused):
		tx.rollback()
		return w.onRefused(ctx, tx, refused)
	case err != nil:
		return fmt.Errorf("commit: %w", err)
	case !committed:
		tx.rollback()
		return nil
	}
	tx.committed = true
	w.cfg.Listener.CommitTook(len(tx.out), time.Since(start))
	tx.accept()
	w.save(time.Now())
	return nil
}

func (w *worker) abort(ctx context.Context, tx *transaction) error {
	tx.rollback()
	if err := w.client.Abort(ctx); err != nil {
		return fmt.Errorf("abort: %w", err)
	}
	return nil
}

// save saves the partitions that are due by time or by size.
func (w *worker) save(now time.Time) {
	due := now.Sub(w.savedAt) >= saveEvery
	for _, p := range w.partitions {
		if !p.ready() || p.tasks.Changed() == 0 || !due && p.tasks.ChangedBytes() < SaveBytes {
			continue
		}
		p.tasks.Save()
		w.recordFlushed(p)
		w.cfg.Listener.Ended(p.id, p.tasks.Kept(), p.tasks.TakeForgets())
	}
	if due {
		w.savedAt = now
		w.cfg.Listener.Agents(w.owner, w.agentFlows())
	}
}

// agentFlows returns the flow to each agent, summed over the worker's partitions.
func (w *worker) agentFlows() []AgentFlow {
	var all []AgentFlow
	at := map[string]int{}
	for _, p := range w.partitions {
		if p.flow == nil {
			continue
		}
		for _, a := range p.flow.order {
			i, ok := at[a.name]
			if !ok {
				i = len(all)
				at[a.name] = i
				all = append(all, AgentFlow{Agent: a.name, Silent: w.health.isSilent(a.name)})
			}
			all[i].Outstanding += a.outstanding
			all[i].Limit += p.flow.slots(a)
			all[i].Queued += len(a.queue)
		}
	}
	return all
}

// decisionTime returns the time of a decision in a partition. It never decreases, even if the clock does.
func (w *worker) decisionTime(s *speculation) time.Time {
	now := events.Millis(w.cfg.Clock.Now())
	if now.Before(s.state.At) {
		return s.state.At
	}
	return now
}

func (w *worker) decisionEnv(s *speculation) Env {
	env := Env{Now: w.decisionTime(s), Namespace: w.cfg.Namespace, Source: w.source, Partition: s.partition.id, Epoch: s.state.Epoch, Forgot: s.state.Forgot,
		Definitions: w.cfg.Catalog, ReplyToPrefixes: w.cfg.ReplyToPrefixes, Token: w.cfg.token}
	env.Requests, env.Leaderless = w.requests.partitions()
	env.Unwritable, env.tooLarge = w.requests.unwritable(), w.tooLarge
	env.Histories = s.partition.histories
	if s.partition.flow != nil {
		env.Slots = s.partition.flow
	}
	return env
}
