package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
)

// How often, and after how much, a worker writes its partitions to the store. The
// log is what keeps them; the store only shortens a restart.
const (
	saveEvery     = time.Second
	saveBytesMost = 1 << 20 // of a partition
)

// snapshotsAgain is how long no snapshots are written after the cluster refused
// one: work doesn't wait for them.
const snapshotsAgain = time.Minute

// worker is one goroutine, one group member, one transactional producer. All its
// fields belong to the goroutine of run.
type worker struct {
	cfg           *Config
	owner         string
	source        string
	log           Log
	inboxes       map[string]events.Inbox
	topicIDs      events.TopicIDs // of the inboxes, as the log reads them
	parts         map[int32]*partition
	restores      chan restored
	loads         chan loaded
	restoring     sync.WaitGroup
	requests      *requestTopics
	health        *agentHealth
	full          bool // too much is at work (admission.go): tasks is paused
	savedAt       time.Time
	refusals      map[int32]int // of a partition's output, in a row
	refusingSince time.Time     // since when the cluster takes nothing; zero: it does
	forgeries     forgeries
	tooLarge      tooLargeRequests
	// records is memory for those of the next transaction, room for what they are made of.
	records []events.Record
	room    *events.Arena

	snapshotsFrom time.Time // none are written before

	confirms    chan []confirmed
	confirming  bool // it is being asked
	confirmedAt time.Time
	sizing      transactionSizing
	// definitionsFrom is the instant before which the definitions aren't read again: the last try failed.
	definitionsFrom time.Time
}

func newWorker(cfg *Config, owner string, log Log, requests *requestTopics) *worker {
	l := &worker{cfg: cfg, owner: owner, source: string(cfg.Namespace) + "scheduler/" + owner, log: log, requests: requests, health: newAgentHealth(),
		inboxes: map[string]events.Inbox{}, parts: map[int32]*partition{}, refusals: map[int32]int{}, tooLarge: tooLargeRequests{}, confirms: make(chan []confirmed, 1), restores: make(chan restored, cfg.Partitions), loads: make(chan loaded, cfg.Partitions)}
	l.sizing.began = time.Now()
	for i, topic := range cfg.Namespace.InboxTopics() {
		l.inboxes[topic] = events.Inbox(i)
		l.topicIDs[i] = log.TopicID(topic)
	}
	return l
}

// run is the loop. It returns when ctx ends (nil), or with the error that makes
// a fresh client necessary.
func (l *worker) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer l.close(cancel)
	for {
		if err := l.turn(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// close drops all partitions; the client is closed by whoever opened it.
func (l *worker) close(cancel context.CancelFunc) {
	cancel()
	for _, p := range l.parts {
		l.drop(p)
	}
	l.cfg.Listener.agents(l.owner, l.agents)
	if l.full {
		l.cfg.Listener.admission(l.owner, true, 0, nil)
	}
	l.restoring.Wait()
	for {
		select {
		case r := <-l.restores:
			r.giveBack()
		default:
			return
		}
	}
}

// turn is one round: reconcile, poll, decide, commit, accept.
func (l *worker) turn(ctx context.Context) error {
	if err := l.reconcile(ctx); err != nil {
		return err
	}
	if err := l.confirmedSome(ctx); err != nil {
		return err
	}
	l.confirm(ctx, time.Now())
	l.admit()
	l.log.PollAtMost(l.sizing.pollMax)
	records, err := l.log.Poll(ctx)
	if err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	if err := l.reconcile(ctx); err != nil {
		return err
	}
	if len(records) == 0 {
		return l.save(time.Now())
	}
	tx := l.begin()
	defer tx.end()
	decided, err := tx.takeAll(ctx, records)
	switch {
	case errors.Is(err, errLong):
		return l.abort(ctx, tx)
	case err != nil:
		return err
	case !decided:
		l.sizing.rolledBack = true
		return l.abort(ctx, tx)
	}
	if nobody := tx.findLeaderless(); nobody != nil {
		l.sizing.rolledBack = true
		if err := l.abort(ctx, tx); err != nil {
			return err
		}
		return l.onRefused(ctx, tx, nobody)
	}
	took := time.Since(tx.began)
	if err := l.commit(ctx, tx); err != nil {
		return err
	}
	if l.sizing.rolledBack = !tx.committed; tx.committed {
		l.sizing.increase(took, l.cfg.decideMost())
	}
	return nil
}

// errNotLoaded: an input's task can't be looked up yet.
var errNotLoaded = errors.New("finished tasks are still being loaded")

func (l *worker) commit(ctx context.Context, tx *transaction) error {
	start := time.Now()
	decided := len(tx.out)
	if start.After(l.snapshotsFrom) {
		tx.snapshots()
	}
	committed, err := l.log.Commit(ctx, tx.out)
	var refused refusedRecord
	switch {
	case errors.As(err, &refused) && refused.RecordIndex() >= decided:
		// Work goes on without snapshots for a while.
		l.cfg.Listener.refusedRecord(l.cfg.Namespace.Snapshots(), refused)
		l.snapshotsFrom = start.Add(snapshotsAgain)
		return tx.forget()
	case errors.As(err, &refused):
		if err := tx.forget(); err != nil {
			return err
		}
		return l.onRefused(ctx, tx, refused)
	case err != nil:
		return fmt.Errorf("commit: %w", err)
	case !committed:
		return tx.forget()
	}
	tx.committed = true
	l.cfg.Listener.took(len(tx.out), time.Since(start))
	tx.accept()
	return l.save(time.Now())
}

func (l *worker) abort(ctx context.Context, tx *transaction) error {
	if err := tx.forget(); err != nil {
		return err
	}
	if err := l.log.Abort(ctx); err != nil {
		return fmt.Errorf("abort: %w", err)
	}
	return nil
}

// save writes what changed, by time and by size.
func (l *worker) save(now time.Time) error {
	due := now.Sub(l.savedAt) >= saveEvery
	for _, p := range l.parts {
		if !p.ready() || p.tasks.Changed() == 0 || !due && p.tasks.ChangedBytes() < saveBytesMost {
			continue
		}
		if err := p.tasks.Save(); err != nil {
			return &storeError{p.id, "save", err}
		}
		l.flushedTo(p)
	}
	if due {
		l.savedAt = now
		l.cfg.Listener.agents(l.owner, l.agents)
	}
	return nil
}

// agents is how the worker's partitions use each agent.
func (l *worker) agents() []AgentFlow {
	var all []AgentFlow
	at := map[string]int{}
	for _, p := range l.parts {
		if p.flow == nil {
			continue
		}
		for _, a := range p.flow.order {
			i, ok := at[a.name]
			if !ok {
				i = len(all)
				at[a.name] = i
				all = append(all, AgentFlow{Agent: a.name, Silent: l.health.isSilent(a.name)})
			}
			all[i].Outstanding += a.outstanding
			all[i].Bound += p.flow.slots(a)
			all[i].Queued += len(a.queue)
		}
	}
	return all
}

// at is the instant of a decision in a partition: never before its last.
func (l *worker) at(s *speculation) time.Time {
	now := events.Millis(l.cfg.Clock.Now())
	if now.Before(s.state.At) {
		return s.state.At
	}
	return now
}

func (l *worker) env(s *speculation) Env {
	env := Env{Now: l.at(s), Namespace: l.cfg.Namespace, Source: l.source, Partition: s.partition.id, Epoch: s.state.Epoch,
		Definitions: l.cfg.Catalog, ReplyToPrefixes: l.cfg.ReplyToPrefixes, Token: l.cfg.token}
	env.Requests, env.Leaderless = l.requests.partitions()
	env.Barred, env.tooLarge = l.requests.whyBarred(), l.tooLarge
	if s.partition.flow != nil {
		env.Slots = s.partition.flow
	}
	return env
}
