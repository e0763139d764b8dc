package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/watchdog"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/supervisor"
)

// SchedulerOptions are the flags of a scheduler.
type SchedulerOptions struct {
	Workers         int            // transactional workers; more than there are partitions don't help
	MaxRunnable     int            // steps that may run before submissions wait; 0: the default
	AgentCapacity   map[string]int // how many requests may be outstanding, by agent
	ObserveCapacity bool           // find the capacity of other agents by measurement; false: unlimited
	ReplyToPrefixes []string       // allowed prefixes of a reply_to; empty: any
	CreateReplyTo   bool           // create a missing reply_to topic
}

// StartScheduler runs a scheduler and its notifier until ctx ends.
func (n *Instance) StartScheduler(ctx context.Context, o SchedulerOptions) error {
	for i := range max(1, min(o.Workers, int(n.Partitions))) {
		n.metrics.health.addMember("scheduler", workerHealthName(scheduler.WorkerOwner(n.Name, i)), nil)
	}
	n.metrics.health.addMember("notifier", "notifier", nil)
	if err := n.followDefinitions(ctx); err != nil {
		return fmt.Errorf("read the workflow definitions: %w", err)
	}
	n.keepDeletedDefinitions(ctx)
	store, err := n.openStore(ctx, projections.ViewTasks)
	if err != nil {
		return err
	}
	status := newPartitionStatus(n)
	history, err := logreader.OpenRestorer(n.Kafka, n.restoreListener(status))
	if err != nil {
		return errors.Join(err, closeStore(store))
	}
	status.committedEvents = func(ctx context.Context, p int32, offsets []int64) (map[int64]bool, int64, error) {
		return history.Committed(ctx, n.Kafka.Namespace.Events(), p, offsets)
	}
	listener := n.schedulerListener(status)
	cfg := scheduler.Config{
		Namespace: n.Kafka.Namespace, Partitions: n.Partitions, Owner: n.Name, Workers: o.Workers, MaxRunnable: o.MaxRunnable,
		TransactionTimeout: n.transactionTimeout(), ReplyToPrefixes: o.ReplyToPrefixes, Capacity: scheduler.Capacity{Agents: o.AgentCapacity, Observe: o.ObserveCapacity},
		OpenClient: status.openWorker, History: wrapped(n.config.Seams.History, scheduler.History(history)), Catalog: n.catalog, Clock: n.Clock,
		Tasks:         func(p int32) (scheduler.Tasks, error) { return n.openTasks(store, p) },
		RequestTopics: n.Admin.RequestTopics, Trim: n.Admin.TrimTopic, Confirm: n.confirmer(history), Listener: listener,
	}
	n.roles.Go(func() error {
		status.runReports(ctx)
		return nil
	})
	n.roles.Go(func() error {
		if err := (&stallWatch{n: n, status: status}).run(ctx); err != nil {
			return fmt.Errorf("scheduler: %w", err)
		}
		return nil
	})
	n.roles.Go(func() error { return n.runNotifier(ctx, o, listener) })
	n.roles.Go(func() error {
		err := scheduler.Run(ctx, cfg)
		history.Close()
		if err != nil {
			err = fmt.Errorf("scheduler: %w", n.withRemedy(err))
		}
		return errors.Join(err, closeStore(store))
	})
	return nil
}

// sessionTimeout is when the partitions of an unresponsive scheduler are reassigned, its inboxes and notifications
// alike.
func (n *Instance) sessionTimeout() time.Duration {
	if n.config.Session > 0 {
		return n.config.Session
	}
	return groupmember.DefaultSessionTimeout
}

func (n *Instance) transactionTimeout() time.Duration {
	if n.config.Transaction > 0 {
		return n.config.Transaction
	}
	return groupmember.DefaultTransactionTimeout
}

// openWorker opens and records a worker.
func (s *partitionStatus) openWorker(ctx context.Context, owner string, number int) (scheduler.Client, error) {
	n := s.n
	cfg := schedulerworker.Config{
		Config: n.Kafka, Group: n.Kafka.Namespace.SchedulerGroup(), Owner: owner, Topics: n.Kafka.Namespace.InboxTopics(), Partitions: n.Partitions,
		SessionTimeout: n.config.Session, TransactionTimeout: n.config.Transaction, FetchMaxWait: n.config.FetchMaxWait, Listener: n.workerListener(owner),
		Committed: s.committedEvents,
	}
	if id := n.memberID("scheduler"); id != "" {
		cfg.InstanceID, cfg.LeaveOnClose = fmt.Sprintf("%s.%d", id, number), n.leaveOnStop(ctx)
	}
	s.wrapListener(cfg.Listener)
	w, err := schedulerworker.Open(ctx, cfg)
	if err != nil {
		return nil, err // not a nil *Worker in an interface
	}
	s.workerOpened(owner, w)
	return n.metrics.health.watchWorker(workerHealthName(owner), wrapped(n.config.Seams.Worker, scheduler.Client(w))), nil
}

// wrapListener makes a worker's listener also record read faults.
func (s *partitionStatus) wrapListener(l *schedulerworker.Listener) {
	assigned, corrupt, position := l.Assigned, l.Corrupt, l.Position
	l.Assigned = func(added, lost []int32) {
		s.clearFaults(added) // before faults of its positions are reported
		assigned(added, lost)
	}
	l.Corrupt = func(topic string, p int32, err error) {
		s.recordCorrupt(topic, p, err)
		corrupt(topic, p, err)
	}
	l.Position = func(at groupmember.Position, fault groupmember.PositionFault) {
		if fault == groupmember.PositionCut {
			s.recordCut(at)
		}
		position(at, fault)
	}
}

// workerHealthName is the name of a worker in probes.
func workerHealthName(owner string) string { return "scheduler " + owner }

func (n *Instance) openTasks(store *projections.Store, p int32) (scheduler.Tasks, error) {
	t, err := store.Tasks(p)
	if err != nil {
		return nil, err // not a nil *Tasks in an interface
	}
	if n.config.Seams.Tasks != nil {
		return n.config.Seams.Tasks(p, t), nil
	}
	return t, nil
}

func (n *Instance) runNotifier(ctx context.Context, o SchedulerOptions, listener *scheduler.Listener) error {
	ns := n.Kafka.Namespace
	outbox, err := kafka.OpenProducer(n.Kafka)
	if err != nil {
		return err
	}
	defer outbox.Close()
	cfg := scheduler.NotifierConfig{Namespace: ns, Source: n.source("notifier"), Outbox: outbox, Clock: n.Clock, Listener: listener,
		Open: func(ctx context.Context) (scheduler.Notifications, error) {
			n.metrics.health.markLeft("notifier") // until it has joined again
			s, err := agentsession.Open(ctx, agentsession.Config{Config: n.Kafka, Group: ns.NotifierGroup(), Topic: ns.Notifications(),
				InstanceID: n.memberID("notifier"), LeaveOnClose: n.leaveOnClose, SessionTimeout: n.sessionTimeout(), FetchMaxWait: n.config.FetchMaxWait,
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

// closeWithin bounds the wait for a store to close when the process ends, in case the disk hangs. What was not
// flushed is read from the log again.
const closeWithin = 15 * time.Second

func closeStore(store *projections.Store) error {
	closed := make(chan error, 1)
	go func() { closed <- store.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(closeWithin):
		return fmt.Errorf("the store could not be closed within %s, probably because the disk hangs", closeWithin)
	}
}

// StartSupervisor runs a supervisor until ctx ends.
func (n *Instance) StartSupervisor(ctx context.Context, sweep time.Duration) error {
	n.metrics.health.addMember("supervisor", "supervisor", nil)
	store, err := n.openStore(ctx, projections.ViewDeadlines)
	if err != nil {
		return err
	}
	n.roles.Go(func() error {
		err := n.runRestarting(ctx, "supervisor", func(ctx context.Context) error { return n.runSupervisor(ctx, store, sweep) }, func(p int32) error {
			v, err := store.Deadlines(p)
			if err != nil {
				return err
			}
			v.Wipe()
			v.Discard()
			return nil
		})
		return errors.Join(err, closeStore(store))
	})
	n.roles.Go(func() error { return n.runSchedules(ctx) })
	return nil
}

func (n *Instance) runSupervisor(ctx context.Context, store *projections.Store, sweep time.Duration) error {
	history, err := logreader.OpenReadOnlyRestorer(n.Kafka, nil)
	if err != nil {
		return err
	}
	defer history.Close()
	var loop watchdog.Loop
	n.metrics.health.watchLoop("supervisor", &loop)
	defer n.metrics.health.watchLoop("supervisor", nil)
	defer n.metrics.health.markLeft("supervisor")
	s, err := supervisor.New(supervisor.Config{Loop: &loop, Namespace: n.Kafka.Namespace, Source: n.source("supervisor"), Open: func(p int32) (supervisor.Deadlines, error) { return openDeadlines(store, p) },
		History: history, Outbox: wrapped(n.config.Seams.Outbox, supervisor.Outbox(n.Producer)), Clock: n.Clock, SweepInterval: sweep, Listener: n.supervisorListener()})
	if err != nil {
		return err
	}
	follower, err := logreader.OpenFollower(ctx, logreader.FollowerConfig{Config: n.Kafka, Group: n.Kafka.Namespace.SupervisorGroup(),
		InstanceID: n.memberID("supervisor"), LeaveOnClose: n.leaveOnStop(ctx), Topics: []string{n.Kafka.Namespace.Events()}, Partitions: n.Partitions, Start: s.Start, IncludePrevious: true, SessionTimeout: n.config.Session, FetchMaxWait: n.config.FetchMaxWait,
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
		return nil, err // not a nil *Deadlines in an interface
	}
	return v, nil
}

// How a role whose client failed is restarted.
const (
	restartWaitMin  = 200 * time.Millisecond
	restartWaitMax  = 10 * time.Second
	restartTriesMax = 30 // in a row; then the process ends with the error
	// missingEventTries is how many readers must miss the last event of a store before it counts as gone. A reader
	// of an earlier assignment may have consumed what follows it.
	missingEventTries = 3
)

// runRestarting runs a role's loop and restarts it with new clients when it fails. It returns errors that no new client
// can fix at once, refusals after backoff.RefusedMax, and other errors after restartTriesMax. A store that is ahead of the
// log is emptied by drop, and then restored. Each partition is dropped in a run of its own, so that isn't counted as a
// failure in a row, unless the partition was dropped before.
func (n *Instance) runRestarting(ctx context.Context, role string, loop func(context.Context) error, drop func(p int32) error) error {
	wait, tries := restartWaitMin, 0
	missing, dropped := missingEvents{}, map[int32]bool{}
	var refused backoff.RefusedPeriod
	for {
		start := time.Now()
		err := loop(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if time.Since(start) > restartWaitMax {
			wait, tries = restartWaitMin, 0
		}
		p, ahead := storeAheadOfLog(err)
		if !ahead {
			p, ahead = missing.count(err)
		}
		if tries++; tries > restartTriesMax || refused.Exceeded(kafka.IsRefused(err), start, time.Now()) || restartIsFutile(err) || !ahead && outOfRange(err) {
			return fmt.Errorf("%s: %w", role, n.withRemedy(err))
		}
		if ahead {
			n.reportStoreDropped(role, p, err)
			if err := drop(p); err != nil {
				return fmt.Errorf("%s: empty the store of partition %d: %w", role, p, err)
			}
			if !dropped[p] {
				dropped[p], wait, tries = true, restartWaitMin, 0
			}
		} else {
			n.log.Log(ctx, failureLevel(err, slog.LevelWarn), "role failed and is restarted", "role", role, "error", err)
		}
		if backoff.Sleep(ctx, wait) != nil {
			return nil
		}
		wait = min(2*wait, restartWaitMax)
	}
}

// missingEvents counts the readers that didn't find the last event of a store, by its place.
type missingEvents map[lastEvent]int

type lastEvent struct {
	partition int32
	offset    int64
}

// count counts err, and reports whether the event of that partition counts as gone. A store that has advanced meanwhile
// has another last event.
func (m missingEvents) count(err error) (p int32, gone bool) {
	other, is := errors.AsType[*projections.LogMismatchError](err)
	if !is {
		return 0, false
	}
	at := lastEvent{other.Partition, other.Offset}
	m[at]++
	return at.partition, m[at] >= missingEventTries
}

// storeAheadOfLog reports whether a store reflects records that the log hasn't committed, and of which partition.
func storeAheadOfLog(err error) (p int32, ahead bool) {
	if outside, is := errors.AsType[*logreader.OffsetRangeError](err); is && outside.Ahead() {
		return outside.Partition, true
	}
	if lost, is := errors.AsType[*logreader.LostError](err); is {
		return lost.Partition, true
	}
	if other, is := errors.AsType[*projections.LogMismatchError](err); is && other.Ahead() {
		return other.Partition, true
	}
	return 0, false
}

// outOfRange reports whether the log doesn't contain a position.
func outOfRange(err error) bool {
	_, is := errors.AsType[*logreader.OffsetRangeError](err)
	return is
}

// reportStoreDropped counts and logs a store that is dropped.
func (n *Instance) reportStoreDropped(role string, p int32, why error) {
	n.metrics.storesDropped.WithLabelValues(role).Inc()
	n.log.Error("store of a partition is ahead of the log; it is dropped and restored from the log", "role", role, "partition", p, "why", why)
}

// restartIsFutile reports whether new clients can't help: brokers refuse a timeout, another process has the same instance
// name, or a role hangs.
func restartIsFutile(err error) bool {
	_, refused := errors.AsType[*kafka.TimeoutError](err)
	_, duplicate := errors.AsType[*groupmember.DuplicateInstanceError](err)
	_, stalled := errors.AsType[*watchdog.StalledError](err)
	denied, is := errors.AsType[*kafka.RefusedError](err)
	return refused || duplicate || stalled || is && denied.Permanent()
}

// withRemedy adds what to do about a store that ends before the log starts.
func (n *Instance) withRemedy(err error) error {
	if outside, is := errors.AsType[*logreader.OffsetRangeError](err); is && outside.Offset < outside.Start {
		return fmt.Errorf("%w; earlier records were deleted unread: restore the topic from a copy, or start with a --data-dir that has read them; "+
			"`waybill topics check` shows whether more will be lost", err)
	}
	return err
}

// StartAgent runs an agent until ctx ends.
func (n *Instance) StartAgent(ctx context.Context, name string, concurrency int, breaker agent.Breaker, h agent.Handler) {
	n.metrics.health.addMember("agent", "agent."+name, nil)
	var live agent.Liveness
	n.metrics.health.watchLoop("agent."+name, &live)
	n.roles.Go(func() error {
		defer n.metrics.health.watchLoop("agent."+name, nil)
		return agent.Run(ctx, agent.Config{
			Open: func(ctx context.Context) (agent.Session, error) {
				s, err := agentsession.Open(ctx, agentsession.Config{Config: n.Kafka, Group: n.Kafka.Namespace.AgentGroup(name),
					Topic: n.Kafka.Namespace.Requests(name), InstanceID: n.memberID("agent." + name), LeaveOnClose: n.leaveOnClose, SessionTimeout: n.config.Session, FetchMaxWait: n.config.FetchMaxWait,
					Listener: n.sessionListener("agent." + name)})
				if err != nil {
					return nil, kafka.FinalError(err)
				}
				return wrapped(n.config.Seams.Sessions, agent.Session(s)), nil
			},
			Namespace: n.Kafka.Namespace, Source: n.source("agent/" + name), Clock: n.Clock.Now, Concurrency: concurrency, Breaker: breaker, Listener: n.agentListener(name),
			Liveness: &live,
		}, h)
	})
}

// confirmWithin bounds a check of whether the log contains what was accepted.
const confirmWithin = 10 * time.Second

// confirmer implements scheduler.Config.Confirm.
func (n *Instance) confirmer(reader *logreader.Restorer) func(context.Context, int32, []scheduler.Accepted, bool) (int64, *scheduler.Accepted, error) {
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
		records, err := reader.ReadAt(ctx, topic, p, offsets, func(d *logreader.CorruptError) {
			for _, offset := range offsets {
				if offset >= d.Offset && offset < d.Next {
					found[offset] = time.Time{} // it exists, but its time can't be read
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
