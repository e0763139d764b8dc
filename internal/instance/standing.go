package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/internal/kafka"
)

// A worker may stand still for reasons that it can't see: its client waits for offsets that an open transaction holds
// back, a pause is never ended, a fetch is never answered. So it is looked at from outside: an inbox of a partition that a
// worker of this process owns stands still while records wait in it and the group's offset doesn't move. It counts while the cluster
// answers, and while nothing pauses that inbox on purpose.
const (
	standingEvery = 10 * time.Second
	// After so many looks it is told, and again at intervals that double; then the worker gets a new client; then the
	// process ends. Neither is done where no client can help (see standingReasons.of).
	standingTold    = 3
	standingRenewed = 6
	standingEnds    = 12
	// standingWithin bounds each look at the cluster.
	standingWithin = 5 * time.Second
)

// standingEvery is how often this process looks.
func (n *Instance) standingEvery() time.Duration {
	return cmp.Or(n.c.Seams.Standing, standingEvery)
}

// inbox is one partition of a topic.
type inbox struct {
	topic     string
	partition int32
}

// stand is an inbox that stands still.
type stand struct {
	inbox
	position int64
	since    time.Time
	seen     time.Time // of the last look that found it
	told     time.Time // when it is to be told next
	renewed  bool      // its worker got a new client
}

// stands are the inboxes in which records wait, by how long their position hasn't moved.
type stands struct {
	every time.Duration // between two looks
	of    map[inbox]*stand
	last  time.Time // of look
}

// look takes in the positions of the inboxes in which records wait. A gap between two looks counts for nothing: the process was
// stopped, or the cluster didn't answer. One whose worker got a new client is remembered until that client has
// joined its group, and the time until then counts for nothing.
func (s *stands) look(now time.Time, waits map[inbox]int64) {
	last, gap := s.last, now.Sub(s.last) > 3*s.every
	s.last = now
	if s.of == nil {
		s.of = map[inbox]*stand{}
	}
	for at, position := range waits {
		before := s.of[at]
		if before == nil || before.position != position || gap {
			s.of[at] = &stand{inbox: at, position: position, since: now, seen: now, told: now.Add(standingTold * s.every)}
			continue
		}
		absent := last.Sub(before.seen)
		before.since, before.told, before.seen = before.since.Add(absent), before.told.Add(absent), now
	}
	maps.DeleteFunc(s.of, func(_ inbox, at *stand) bool {
		return at.seen.Before(now) && !(at.renewed && now.Sub(at.seen) < standingRenewed*s.every)
	})
}

// still are those that have stood for standingTold looks, the longest first.
func (s *stands) still(now time.Time) []*stand {
	var still []*stand
	for _, at := range s.of {
		if at.seen.Equal(s.last) && now.Sub(at.since) >= standingTold*s.every {
			still = append(still, at)
		}
	}
	slices.SortFunc(still, func(a, b *stand) int {
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		return strings.Compare(a.String(), b.String())
	})
	return still
}

// due reports whether it is to be told, and when again.
func (s *stand) due(now time.Time) bool {
	if now.Before(s.told) {
		return false
	}
	s.told = now.Add(now.Sub(s.since))
	return true
}

func (s *stand) String() string { return s.topic + "/" + strconv.Itoa(int(s.partition)) }

// StandingError ends a process one of whose workers stands still though it got a new client.
type StandingError struct {
	Inbox string // topic/partition
	For   time.Duration
	Why   string
}

func (e *StandingError) Error() string {
	return fmt.Sprintf("%s has stood still for %s, a new client changed nothing, and the process ends so that another can take over: %s", e.Inbox, e.For.Round(time.Second), e.Why)
}

// standing watches the workers of a scheduler process.
type standing struct {
	n         *Instance
	restoring *restoring
	stands    stands
	positions map[inbox]int64 // of the last look
}

// run watches until ctx ends, or until a worker stands still though it got a new client.
func (w *standing) run(ctx context.Context) error {
	w.stands.every = w.n.standingEvery()
	tick := time.NewTicker(w.stands.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		waits, err := w.waits(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			w.n.log.Debug("whether partitions stand still can't be told", "error", err)
			continue
		}
		now := time.Now()
		w.stands.look(now, waits)
		if err := w.judge(ctx, now); err != nil {
			return err
		}
	}
}

// waits are the positions of the inboxes of this process in which records wait.
func (w *standing) waits(ctx context.Context) (map[inbox]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, standingWithin)
	defer cancel()
	ns := w.n.Kafka.Namespace
	commits, err := w.n.Admin.Commits(ctx, ns.SchedulerGroup())
	if err != nil {
		return nil, err
	}
	w.take(commits)
	starts, ends, err := w.n.Admin.InboxBounds(ctx)
	if err != nil {
		return nil, err
	}
	waits := waiting(ns.InboxTopics(), commits, starts, ends)
	maps.DeleteFunc(waits, func(at inbox, _ int64) bool {
		_, owns := w.restoring.owner(at.partition % w.n.Partitions)
		return !owns || w.restoring.paused(at.topic, at.partition)
	})
	return waits, nil
}

// take takes in the group's offsets: an inbox whose offset has moved is read.
func (w *standing) take(commits map[string]map[int32]int64) {
	before := w.positions
	w.positions = map[inbox]int64{}
	for topic, ps := range commits {
		for p, position := range ps {
			at := inbox{topic, p}
			if was, is := before[at]; is && was != position {
				w.restoring.committed(at)
			}
			w.positions[at] = position
		}
	}
}

// waiting are the positions of those partitions of inboxes in which committed records wait; -1: nothing was committed. What was
// deleted before it was read doesn't wait, nor what an open transaction holds back.
func waiting(topics []string, commits, starts, ends map[string]map[int32]int64) map[inbox]int64 {
	waits := map[inbox]int64{}
	for _, topic := range topics {
		for p, end := range ends[topic] {
			position, is := commits[topic][p]
			if !is {
				position = -1
			}
			if max(position, starts[topic][p]) < end {
				waits[inbox{topic, p}] = position
			}
		}
	}
	return waits
}

// judge tells of what stands still, gives workers new clients, and ends the process.
func (w *standing) judge(ctx context.Context, now time.Time) error {
	still := w.stands.still(now)
	w.n.metrics.standing.Reset()
	if len(still) == 0 {
		return nil
	}
	why := w.n.whyStanding(ctx)
	for _, s := range still {
		stood := now.Sub(s.since)
		w.n.metrics.standing.WithLabelValues(s.topic, strconv.Itoa(int(s.partition))).Set(stood.Seconds())
		reason, helpless := why.of(s.inbox, w.n.Partitions)
		if unreadable := w.restoring.unreadable(s.topic, s.partition); unreadable != nil {
			reason, helpless = unreadable.Error(), true
		}
		if s.due(now) {
			w.n.log.Warn("records wait in a partition, and its worker stands still", "topic", s.topic, "partition", s.partition, "position", s.position,
				"since", s.since.UTC().Format(time.RFC3339), "why", reason)
		}
		switch {
		case helpless:
		case stood >= standingEnds*w.stands.every && s.renewed:
			return &StandingError{s.String(), stood, reason}
		case stood >= standingRenewed*w.stands.every && !s.renewed:
			w.renew(s.partition % w.n.Partitions)
		}
	}
	return nil
}

// renew closes the client of a worker, which gets a new one. What else it owns stands for the same reason, or begins again.
func (w *standing) renew(p int32) {
	owner, owns := w.restoring.owner(p)
	if !owns {
		return
	}
	w.n.log.Warn("a worker that stands still gets a new client", "owner", owner, "partition", p)
	for _, s := range w.stands.of {
		if of, owns := w.restoring.owner(s.partition % w.n.Partitions); owns && of == owner {
			s.renewed = true
		}
	}
	go w.restoring.close(owner) // a client that hangs takes seconds to close
}

// standingReasons are what is known of why partitions stand still.
type standingReasons struct {
	leaderless map[string][]int32
	unstable   []int32
	hanging    []*kafka.HangingError
	events     string
	unknown    error // why some of it isn't known
}

// whyStanding asks the cluster what holds partitions up.
func (n *Instance) whyStanding(ctx context.Context) (why standingReasons) {
	ctx, cancel := context.WithTimeout(ctx, standingWithin)
	defer cancel()
	var errs [3]error
	why.leaderless, errs[0] = n.Admin.LeaderlessPartitions(ctx)
	why.unstable, errs[1] = n.Admin.UnstablePartitions(ctx, n.Partitions)
	why.hanging, errs[2] = n.Admin.Hanging(ctx)
	why.events, why.unknown = n.Kafka.Namespace.Events(), errors.Join(errs[:]...)
	return why
}

// of says why an inbox stands still. helpless: no other client can help, only who looks after the cluster.
func (why *standingReasons) of(at inbox, partitions int32) (reason string, helpless bool) {
	home := at.partition % partitions
	switch {
	case slices.Contains(why.leaderless[at.topic], at.partition):
		return "no broker leads it", true
	case slices.Contains(why.leaderless[why.events], home):
		return fmt.Sprintf("no broker leads %s/%d", why.events, home), true
	}
	var reasons []string
	held := slices.Contains(why.unstable, home)
	if held {
		reasons = append(reasons, "a transaction that is open in __consumer_offsets holds back the group's offsets")
	}
	for _, h := range why.hanging {
		offsets := h.Topic != why.events && h.Topic != at.topic
		if h.Partition == home && !offsets || offsets && held {
			reasons, helpless = append(reasons, fmt.Sprintf("the transaction of producer %d hangs in %s/%d, abort it: %s", h.Producer, h.Topic, h.Partition, h.Abort())), true
		}
	}
	if why.unknown != nil {
		reasons = append(reasons, fmt.Sprintf("not all could be looked at: %v", why.unknown))
	}
	if len(reasons) == 0 {
		return "nothing is known that holds it up", false
	}
	return strings.Join(reasons, "; "), helpless
}
