package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/supervisor"
)

// schedulerOptions are the flags of a scheduler.
type schedulerOptions struct {
	lanes           int
	maxRunnable     int
	replyToPrefixes []string
	createReplyTo   bool
}

// startScheduler runs a scheduler and its notifier until ctx ends.
func (n *node) startScheduler(ctx context.Context, o schedulerOptions) error {
	if err := n.follow(ctx); err != nil {
		return fmt.Errorf("read the workflow definitions: %w", err)
	}
	n.roles.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-n.catalog.watch.Done():
			return fmt.Errorf("follow the workflow definitions: %w", n.catalog.watch.Err())
		}
	})
	store, err := n.store(ctx, projections.ViewTasks)
	if err != nil {
		return err
	}
	history, err := kafka.OpenRestorer(n.cfg, n.restoreListener())
	if err != nil {
		return errors.Join(err, closeStore(store))
	}
	listener := n.schedulerListener()
	cfg := scheduler.Config{
		Namespace: n.cfg.Namespace, Partitions: n.partitions, Owner: n.name, Lanes: o.lanes, MaxRunnable: o.maxRunnable,
		TransactionTimeout: n.transactionTimeout(), ReplyToPrefixes: o.replyToPrefixes,
		OpenLog: n.openLane, History: history, Catalog: n.catalog, Clock: n.clock,
		Tasks:         func(p int32) (scheduler.Tasks, error) { return store.Tasks(p) },
		RequestTopics: n.admin.RequestTopics, Trim: n.admin.DeleteRecordsBefore, Listener: listener,
	}
	n.roles.Go(func() error { return n.notify(ctx, o, listener) })
	n.roles.Go(func() error {
		err := scheduler.Run(ctx, cfg)
		history.Close()
		if err != nil {
			err = fmt.Errorf("scheduler: %w", err)
		}
		return errors.Join(err, closeStore(store))
	})
	return nil
}

func (n *node) transactionTimeout() time.Duration {
	if n.timing.transaction > 0 {
		return n.timing.transaction
	}
	return kafka.DefaultTransactionTimeout
}

func (n *node) openLane(ctx context.Context, owner string, number int) (scheduler.Log, error) {
	cfg := kafka.LaneConfig{
		Config: n.cfg, Group: n.cfg.Namespace.SchedulerGroup(), Owner: owner, Topics: n.cfg.Namespace.InboxTopics(), Partitions: n.partitions,
		SessionTimeout: n.timing.session, TransactionTimeout: n.timing.transaction, Listener: n.laneListener(owner),
	}
	if id := n.member("scheduler"); id != "" {
		cfg.InstanceID = fmt.Sprintf("%s.%d", id, number)
	}
	l, err := kafka.OpenLane(ctx, cfg)
	if err != nil {
		return nil, err // not a nil *Lane in an interface
	}
	return l, nil
}

func (n *node) notify(ctx context.Context, o schedulerOptions, listener *scheduler.Listener) error {
	ns := n.cfg.Namespace
	outbox, err := kafka.OpenProducer(n.cfg)
	if err != nil {
		return err
	}
	defer outbox.Close()
	cfg := scheduler.NotifierConfig{Namespace: ns, Source: n.source("notifier"), Outbox: outbox, Clock: n.clock, Listener: listener,
		Open: func(ctx context.Context) (scheduler.Notifications, error) {
			s, err := kafka.OpenSession(ctx, kafka.SessionConfig{Config: n.cfg, Group: ns.NotifierGroup(), Topic: ns.Notifications(),
				InstanceID: n.member("notifier"), SessionTimeout: n.timing.session})
			if err != nil {
				return nil, err
			}
			return s, nil
		}}
	if o.createReplyTo {
		cfg.Ensure = func(ctx context.Context, topic string) error {
			_, err := n.admin.EnsureTopic(ctx, topic, 1)
			return err
		}
	}
	return scheduler.Notify(ctx, cfg)
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

// startSupervisor runs a supervisor until ctx ends.
func (n *node) startSupervisor(ctx context.Context, sweep time.Duration) error {
	store, err := n.store(ctx, projections.ViewDeadlines)
	if err != nil {
		return err
	}
	n.roles.Go(func() error {
		err := n.again(ctx, "supervisor", func(ctx context.Context) error { return n.supervise(ctx, store, sweep) })
		return errors.Join(err, closeStore(store))
	})
	return nil
}

func (n *node) supervise(ctx context.Context, store *projections.Store, sweep time.Duration) error {
	s, err := supervisor.New(supervisor.Config{Namespace: n.cfg.Namespace, Source: n.source("supervisor"), Open: func(p int32) (supervisor.Deadlines, error) { return openDeadlines(store, p) },
		Outbox: n.producer, Clock: n.clock, SweepInterval: sweep, Listener: n.supervisorListener()})
	if err != nil {
		return err
	}
	follower, err := kafka.OpenFollower(ctx, kafka.FollowerConfig{Config: n.cfg, Group: n.cfg.Namespace.SupervisorGroup(),
		InstanceID: n.member("supervisor"), Topics: []string{n.cfg.Namespace.Events()}, Partitions: n.partitions, Start: s.Start, SessionTimeout: n.timing.session})
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
)

// again runs a role's loop, and begins anew with fresh clients when it fails.
// What no waiting heals ends the process after a while, with the reason.
func (n *node) again(ctx context.Context, role string, loop func(context.Context) error) error {
	wait, tries := againLeast, 0
	for {
		start := time.Now()
		err := loop(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if time.Since(start) > againMost {
			wait, tries = againLeast, 0
		}
		if tries++; tries > againTries || errors.Is(err, errStore) {
			return fmt.Errorf("%s: %w", role, err)
		}
		n.log.Warn("begins anew", "role", role, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
			wait = min(2*wait, againMost)
		}
	}
}

// errStore is wrapped where a projection's store has failed: trying again
// doesn't help.
var errStore = errors.New("the store failed")

// startAgent runs an agent until ctx ends.
func (n *node) startAgent(ctx context.Context, name string, concurrency int, breaker agent.Breaker, h agent.Handler) {
	n.roles.Go(func() error {
		return agent.Run(ctx, agent.Config{
			Open: func(ctx context.Context) (agent.Session, error) {
				s, err := kafka.OpenSession(ctx, kafka.SessionConfig{Config: n.cfg, Group: n.cfg.Namespace.AgentGroup(name),
					Topic: n.cfg.Namespace.Requests(name), InstanceID: n.member("agent." + name), SessionTimeout: n.timing.session})
				if err != nil {
					return nil, err
				}
				return s, nil
			},
			Namespace: n.cfg.Namespace, Source: n.source("agent/" + name), Clock: n.clock.Now, Concurrency: concurrency, Breaker: breaker, Listener: n.agentListener(name),
		}, h)
	})
}

// startAudit keeps the timelines until ctx ends. observe, which may be nil, is
// shown every record that the audit reads, from the start of an empty store.
func (n *node) startAudit(ctx context.Context, observe func([]events.Record)) error {
	store, err := n.store(ctx, projections.ViewTimelines)
	if err != nil {
		return err
	}
	n.roles.Go(func() error {
		err := n.again(ctx, "audit", func(ctx context.Context) error { return n.audit(ctx, store, observe) })
		return errors.Join(err, closeStore(store))
	})
	return nil
}

// audit follows events and keeps every task's timeline.
func (n *node) audit(ctx context.Context, store *projections.Store, observe func([]events.Record)) error {
	a := &auditor{store: store, views: map[int32]*projections.Timelines{}}
	defer a.close()
	follower, err := kafka.OpenFollower(ctx, kafka.FollowerConfig{Config: n.cfg, Group: n.cfg.Namespace.AuditGroup(),
		Topics: []string{n.cfg.Namespace.Events()}, Partitions: n.partitions, Start: a.start, SessionTimeout: n.timing.session})
	if err != nil {
		return err
	}
	defer follower.Close()
	saved := time.Now()
	for {
		records, err := follower.Poll(ctx)
		if err != nil {
			return err
		}
		if err := a.apply(follower.Assigned(), records); err != nil {
			return err
		}
		if observe != nil {
			observe(records)
		}
		if time.Since(saved) > auditSaveEvery {
			if err := a.save(); err != nil {
				return fmt.Errorf("%w: %w", errStore, err)
			}
			saved = time.Now()
		}
	}
}
