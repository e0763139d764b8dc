package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/index"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/watchdog"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/supervisor"
)

// SchedulerOptions are the flags of a scheduler.
type SchedulerOptions struct {
	Workers         int            // transactional workers, at most as many as partitions count
	MaxRunnable     int            // steps at work before submissions wait; 0: the default
	AgentCapacity   map[string]int // requests that agents may have outstanding
	ObserveCapacity bool           // find out that of the others; else any number
	ReplyToPrefixes []string       // what a reply_to may begin with; none: anything
	CreateReplyTo   bool           // create the topic of a reply_to that is missing
}

// StartScheduler runs a scheduler and its notifier until ctx ends.
func (n *Instance) StartScheduler(ctx context.Context, o SchedulerOptions) error {
	for i := range max(1, min(o.Workers, int(n.Partitions))) {
		n.metrics.health.member("scheduler", workerName(scheduler.WorkerOwner(n.Name, i)), nil)
	}
	n.metrics.health.member("notifier", "notifier", nil)
	if err := n.follow(ctx); err != nil {
		return fmt.Errorf("read the workflow definitions: %w", err)
	}
	n.keepDeleted(ctx)
	store, err := n.store(ctx, projections.ViewTasks)
	if err != nil {
		return err
	}
	restoring := newRestoring(n)
	history, err := kafka.OpenRestorer(n.Kafka, n.restoreListener(restoring))
	if err != nil {
		return errors.Join(err, closeStore(store))
	}
	restoring.committedEvents = func(ctx context.Context, p int32, offsets []int64) (map[int64]bool, int64, error) {
		return history.Committed(ctx, n.Kafka.Namespace.Events(), p, offsets)
	}
	listener := n.schedulerListener(restoring)
	cfg := scheduler.Config{
		Namespace: n.Kafka.Namespace, Partitions: n.Partitions, Owner: n.Name, Workers: o.Workers, MaxRunnable: o.MaxRunnable,
		TransactionTimeout: n.transactionTimeout(), ReplyToPrefixes: o.ReplyToPrefixes, Capacity: scheduler.Capacity{Agents: o.AgentCapacity, Observe: o.ObserveCapacity},
		OpenLog: restoring.openWorker, History: through(n.c.Seams.History, scheduler.History(history)), Catalog: n.catalog, Clock: n.Clock,
		Tasks:         func(p int32) (scheduler.Tasks, error) { return n.openTasks(store, p) },
		RequestTopics: n.Admin.RequestTopics, Trim: n.Admin.TrimTopic, Confirm: n.confirmer(history), Listener: listener,
	}
	n.roles.Go(func() error {
		restoring.run(ctx)
		return nil
	})
	n.roles.Go(func() error {
		if err := (&standing{n: n, restoring: restoring}).run(ctx); err != nil {
			return fmt.Errorf("scheduler: %w", err)
		}
		return nil
	})
	n.roles.Go(func() error { return n.notify(ctx, o, listener) })
	n.roles.Go(func() error {
		err := scheduler.Run(ctx, cfg)
		history.Close()
		if err != nil {
			err = fmt.Errorf("scheduler: %w", n.remedied(err))
		}
		return errors.Join(err, closeStore(store))
	})
	return nil
}

// sessionTimeout is after how long the partitions of a silent scheduler are another's: its inboxes and
// its notifications alike.
func (n *Instance) sessionTimeout() time.Duration {
	if n.c.Session > 0 {
		return n.c.Session
	}
	return kafka.DefaultSessionTimeout
}

func (n *Instance) transactionTimeout() time.Duration {
	if n.c.Transaction > 0 {
		return n.c.Transaction
	}
	return kafka.DefaultTransactionTimeout
}

// openWorker opens a worker, and takes note of it.
func (s *restoring) openWorker(ctx context.Context, owner string, number int) (scheduler.Log, error) {
	n := s.n
	cfg := kafka.WorkerConfig{
		Config: n.Kafka, Group: n.Kafka.Namespace.SchedulerGroup(), Owner: owner, Topics: n.Kafka.Namespace.InboxTopics(), Partitions: n.Partitions,
		SessionTimeout: n.c.Session, TransactionTimeout: n.c.Transaction, FetchMaxWait: n.c.FetchMaxWait, Listener: n.workerListener(owner),
		Committed: s.committedEvents,
	}
	if id := n.member("scheduler"); id != "" {
		cfg.InstanceID, cfg.LeaveOnClose = fmt.Sprintf("%s.%d", id, number), n.leavesOnStop(ctx)
	}
	s.observe(cfg.Listener)
	l, err := kafka.OpenWorker(ctx, cfg)
	if err != nil {
		return nil, err // not a nil *Worker in an interface
	}
	s.opened(owner, l)
	return n.metrics.health.watched(workerName(owner), through(n.c.Seams.Worker, scheduler.Log(l))), nil
}

// observe takes note of which inboxes of a worker can't be read, and tells its listener.
func (s *restoring) observe(l *kafka.WorkerListener) {
	assigned, damaged, position := l.Assigned, l.Damaged, l.Position
	l.Assigned = func(added, lost []int32) {
		s.readable(added) // before its positions are looked at
		assigned(added, lost)
	}
	l.Damaged = func(topic string, p int32, err error) {
		s.damaged(topic, p, err)
		damaged(topic, p, err)
	}
	l.Position = func(at kafka.Position, fault kafka.PositionFault) {
		if fault == kafka.PositionCut {
			s.cutOff(at)
		}
		position(at, fault)
	}
}

// workerName is what probes are told of a worker.
func workerName(owner string) string { return "scheduler " + owner }

func (n *Instance) openTasks(store *projections.Store, p int32) (scheduler.Tasks, error) {
	t, err := store.Tasks(p)
	if err != nil {
		return nil, err // not a nil *Tasks in an interface
	}
	if n.c.Seams.Tasks != nil {
		return n.c.Seams.Tasks(p, t), nil
	}
	return t, nil
}

func (n *Instance) notify(ctx context.Context, o SchedulerOptions, listener *scheduler.Listener) error {
	ns := n.Kafka.Namespace
	outbox, err := kafka.OpenProducer(n.Kafka)
	if err != nil {
		return err
	}
	defer outbox.Close()
	cfg := scheduler.NotifierConfig{Namespace: ns, Source: n.source("notifier"), Outbox: outbox, Clock: n.Clock, Listener: listener,
		Open: func(ctx context.Context) (scheduler.Notifications, error) {
			n.metrics.health.left("notifier") // until it has joined again
			s, err := kafka.OpenSession(ctx, kafka.SessionConfig{Config: n.Kafka, Group: ns.NotifierGroup(), Topic: ns.Notifications(),
				InstanceID: n.member("notifier"), LeaveOnClose: n.leaves, SessionTimeout: n.sessionTimeout(), FetchMaxWait: n.c.FetchMaxWait,
				Listener: n.sessionListener("notifier")})
			if err != nil {
				return nil, err
			}
			return s, nil
		}}
	if o.CreateReplyTo {
		cfg.Ensure = func(ctx context.Context, topic string) error {
			_, err := n.Admin.EnsureTopic(ctx, topic, 1)
			return err
		}
	}
	if err := scheduler.Notify(ctx, cfg); err != nil {
		return fmt.Errorf("notifier: %w", err)
	}
	return nil
}

// closeWithin is how long the end of a process waits for its store: a disk that
// hangs must not keep it, and with it what it owns, from ending. What was not
// flushed is read from the log again.
const closeWithin = 15 * time.Second

func closeStore(store *projections.Store) error {
	closed := make(chan error, 1)
	go func() { closed <- store.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(closeWithin):
		return fmt.Errorf("%w: it could not be closed within %s", errStore, closeWithin)
	}
}

// StartSupervisor runs a supervisor until ctx ends.
func (n *Instance) StartSupervisor(ctx context.Context, sweep time.Duration) error {
	n.metrics.health.member("supervisor", "supervisor", nil)
	store, err := n.store(ctx, projections.ViewDeadlines)
	if err != nil {
		return err
	}
	n.roles.Go(func() error {
		err := n.again(ctx, "supervisor", func(ctx context.Context) error { return n.supervise(ctx, store, sweep) }, func(p int32) error {
			v, err := store.Deadlines(p)
			if err != nil {
				return err
			}
			defer v.Discard()
			return v.Wipe()
		})
		return errors.Join(err, closeStore(store))
	})
	return nil
}

func (n *Instance) supervise(ctx context.Context, store *projections.Store, sweep time.Duration) error {
	history, err := kafka.OpenReadOnlyRestorer(n.Kafka, nil)
	if err != nil {
		return err
	}
	defer history.Close()
	var loop watchdog.Loop
	n.metrics.health.loop("supervisor", &loop)
	defer n.metrics.health.loop("supervisor", nil)
	defer n.metrics.health.left("supervisor")
	s, err := supervisor.New(supervisor.Config{Loop: &loop, Namespace: n.Kafka.Namespace, Source: n.source("supervisor"), Open: func(p int32) (supervisor.Deadlines, error) { return openDeadlines(store, p) },
		History: history, Outbox: through(n.c.Seams.Outbox, supervisor.Outbox(n.Producer)), Clock: n.Clock, SweepInterval: sweep, Listener: n.supervisorListener()})
	if err != nil {
		return err
	}
	follower, err := kafka.OpenFollower(ctx, kafka.FollowerConfig{Config: n.Kafka, Group: n.Kafka.Namespace.SupervisorGroup(),
		InstanceID: n.member("supervisor"), LeaveOnClose: n.leavesOnStop(ctx), Topics: []string{n.Kafka.Namespace.Events()}, Partitions: n.Partitions, Start: s.Start, IncludePrevious: true, SessionTimeout: n.c.Session, FetchMaxWait: n.c.FetchMaxWait,
		ReuseBuffers: true, Listener: n.followerListener("supervisor")})
	if err != nil {
		return err
	}
	defer follower.Close()
	return s.Run(ctx, follower)
}

func openDeadlines(store *projections.Store, p int32) (supervisor.Deadlines, error) {
	v, err := store.Deadlines(p)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errStore, err) // not a nil *Deadlines in an interface
	}
	return v, nil
}

// How a role that lost its client begins again.
const (
	againLeast = 200 * time.Millisecond
	againMost  = 10 * time.Second
	againTries = 30 // in a row, before the process ends with the reason
	// nothingTries is how many readers find nothing where a store has its last event, before it counts as
	// gone: one may have had in hand, of an assignment before, what comes behind it.
	nothingTries = 3
)

// again runs a role's loop, and begins again with fresh clients when it fails.
// What no fresh client heals ends the process at once, with the reason, and what no waiting
// heals after a while. A partition whose store is ahead of the log is emptied by drop, and restored.
func (n *Instance) again(ctx context.Context, role string, loop func(context.Context) error, drop func(p int32) error) error {
	wait, tries := againLeast, 0
	var nothing nothingThere
	var refused refusedPeriod
	for {
		start := time.Now()
		err := loop(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if time.Since(start) > againMost {
			wait, tries = againLeast, 0
		}
		p, ahead := aheadOfLog(err)
		if !ahead {
			p, ahead = nothing.lasts(err)
		}
		if tries++; tries > againTries || refused.exceeded(err, time.Now()) || errors.Is(err, errStore) || errors.Is(err, index.ErrStore) || isPermanent(err) || !ahead && outOfRange(err) {
			return fmt.Errorf("%s: %w", role, n.remedied(err))
		}
		if ahead {
			n.storeAhead(role, p, err)
			if err := drop(p); err != nil {
				return fmt.Errorf("%s: %w: empty the store of partition %d: %w", role, errStore, p, err)
			}
		} else {
			n.log.Log(ctx, levelOf(err, slog.LevelWarn), "begins anew", "role", role, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
			wait = min(2*wait, againMost)
		}
	}
}

// refusedMax is how long a role tries again while the cluster refuses its principal. Operators change credentials and ACLs
// while processes run, so the first refusal doesn't end the process.
const refusedMax = time.Minute

// refusedPeriod is the time since which each of a role's clients was refused.
type refusedPeriod struct{ since time.Time }

// exceeded records the error with which a client ended. It reports whether clients have been refused for refusedMax.
func (r *refusedPeriod) exceeded(err error, now time.Time) bool {
	switch {
	case !kafka.IsRefused(err):
		r.since = time.Time{}
	case r.since.IsZero():
		r.since = now
	}
	return !r.since.IsZero() && now.Sub(r.since) > refusedMax
}

// nothingThere counts, by the place of a store's last event, the readers that found nothing there.
type nothingThere map[lastEvent]int

type lastEvent struct {
	partition int32
	offset    int64
}

// lasts takes what a reader ended with, and reports whether no other will find anything either, and of which
// partition. A store that has gone on meanwhile has another last event.
func (n *nothingThere) lasts(err error) (p int32, lasts bool) {
	other, is := errors.AsType[*projections.LogMismatchError](err)
	if !is {
		return 0, false
	}
	if *n == nil {
		*n = nothingThere{}
	}
	at := lastEvent{other.Partition, other.Offset}
	(*n)[at]++
	return at.partition, (*n)[at] >= nothingTries
}

// aheadOfLog reports whether a store has what the log hasn't committed, and of which partition.
func aheadOfLog(err error) (p int32, ahead bool) {
	if outside, is := errors.AsType[*kafka.OffsetRangeError](err); is && outside.Ahead() {
		return outside.Partition, true
	}
	if lost, is := errors.AsType[*kafka.LostError](err); is {
		return lost.Partition, true
	}
	if other, is := errors.AsType[*projections.LogMismatchError](err); is && other.StoreIsAhead() {
		return other.Partition, true
	}
	return 0, false
}

// outOfRange reports whether the log doesn't hold a position.
func outOfRange(err error) bool {
	_, is := errors.AsType[*kafka.OffsetRangeError](err)
	return is
}

// storeAhead tells of a store that is dropped.
func (n *Instance) storeAhead(role string, p int32, why error) {
	n.metrics.dropped.WithLabelValues(role).Inc()
	n.log.Error("the store of a partition has what the log hasn't committed; it is dropped, and restored from the log", "role", role, "partition", p, "why", why)
}

// isPermanent reports whether the brokers don't take a timeout, another process has this one's name, or
// a role hangs.
func isPermanent(err error) bool {
	_, refused := errors.AsType[*kafka.TimeoutError](err)
	_, twin := errors.AsType[*kafka.TwinError](err)
	_, stalled := errors.AsType[*watchdog.StalledError](err)
	denied, is := errors.AsType[*kafka.RefusedError](err)
	return refused || twin || stalled || is && denied.Permanent()
}

// remedied says what to do about a store that ends before the log begins.
func (n *Instance) remedied(err error) error {
	if outside, is := errors.AsType[*kafka.OffsetRangeError](err); is && outside.Offset < outside.Start {
		return fmt.Errorf("%w; what was before is deleted, and nothing here has read it: bring the topic back from a copy, or start with a --data-dir that has; "+
			"`waybill topics check` says whether more will be lost", err)
	}
	return err
}

// errStore is wrapped where a projection's store has failed: trying again
// doesn't help.
var errStore = errors.New("the store failed")

// StartAgent runs an agent until ctx ends.
func (n *Instance) StartAgent(ctx context.Context, name string, concurrency int, breaker agent.Breaker, h agent.Handler) {
	n.metrics.health.member("agent", "agent."+name, nil)
	var live agent.Liveness
	n.metrics.health.loop("agent."+name, &live)
	n.roles.Go(func() error {
		defer n.metrics.health.loop("agent."+name, nil)
		return agent.Run(ctx, agent.Config{
			Open: func(ctx context.Context) (agent.Session, error) {
				s, err := kafka.OpenSession(ctx, kafka.SessionConfig{Config: n.Kafka, Group: n.Kafka.Namespace.AgentGroup(name),
					Topic: n.Kafka.Namespace.Requests(name), InstanceID: n.member("agent." + name), LeaveOnClose: n.leaves, SessionTimeout: n.c.Session, FetchMaxWait: n.c.FetchMaxWait,
					Listener: n.sessionListener("agent." + name)})
				if err != nil {
					return nil, err
				}
				return through(n.c.Seams.Sessions, agent.Session(s)), nil
			},
			Namespace: n.Kafka.Namespace, Source: n.source("agent/" + name), Clock: n.Clock.Now, Concurrency: concurrency, Breaker: breaker, Listener: n.agentListener(name),
			Liveness: &live,
		}, h)
	})
}

// confirmWithin bounds a look whether the log has what was accepted.
const confirmWithin = 10 * time.Second

// confirmer is a scheduler.Config.Confirm.
func (n *Instance) confirmer(reader *kafka.Restorer) func(context.Context, int32, []scheduler.Accepted, bool) (int64, *scheduler.Accepted, error) {
	topic := n.Kafka.Namespace.Events()
	return func(ctx context.Context, p int32, accepted []scheduler.Accepted, all bool) (int64, *scheduler.Accepted, error) {
		ctx, cancel := context.WithTimeout(ctx, confirmWithin)
		defer cancel()
		var log scheduler.LogRange
		var err error
		if log.Start, log.Stable, log.End, err = reader.Bounds(ctx, topic, p); err != nil {
			return 0, nil, err
		}
		seek, missing := scheduler.EventsToCheck(accepted, log, all)
		if missing != nil || len(seek) == 0 {
			return log.Stable, missing, nil
		}
		offsets := make([]int64, len(seek))
		for i := range seek {
			offsets[i] = seek[i].Offset
		}
		found := map[int64]time.Time{}
		records, err := reader.ReadAt(ctx, topic, p, offsets, func(d *kafka.DamagedError) {
			for _, offset := range offsets {
				if offset >= d.Offset && offset < d.Next {
					found[offset] = time.Time{} // it is there, and whose it is can't be read
				}
			}
		})
		if err != nil {
			return 0, nil, err
		}
		for i := range records {
			e, err := events.DecodeEnvelope(&records[i])
			found[records[i].Offset] = time.Time{}
			if err == nil {
				found[records[i].Offset] = e.At
			}
		}
		return log.Stable, scheduler.FirstMissing(seek, found), nil
	}
}
