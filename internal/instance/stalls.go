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

	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

const (
	stallCheckEvery = 10 * time.Second
	// A stall is logged after this many checks, and again at intervals that double.
	stallLogChecks = 3
	// After this many checks the worker gets a new client, and then the process ends (stallEndChecks). Neither
	// happens if a new client can't help; see stallReasons.reasonFor.
	stallRenewChecks = 6
	stallEndChecks   = 12
	// stallCheckWithin bounds the requests of a check.
	stallCheckWithin = 5 * time.Second
)

// stallCheckEvery is the interval of the checks.
func (n *Instance) stallCheckEvery() time.Duration {
	return cmp.Or(n.config.Seams.StallCheckEvery, stallCheckEvery)
}

// inbox is one partition of an inbox topic.
type inbox struct {
	topic     string
	partition int32
}

// stall is an inbox that makes no progress.
type stall struct {
	inbox
	position      int64
	since         time.Time
	seenAt        time.Time // latest check that found it
	nextLog       time.Time // when it is to be logged next
	clientRenewed bool      // its worker got a new client
}

// stallTracker keeps, for each inbox with waiting records, since when its position hasn't changed.
type stallTracker struct {
	every     time.Duration // interval of the checks
	byInbox   map[inbox]*stall
	checkedAt time.Time // latest call of update
}

// update takes the positions of the inboxes with waiting records. A gap between two checks restarts the count: the
// process was suspended, or the cluster didn't respond. An inbox whose worker got a new client is remembered until
// that client has joined its group, and that time doesn't count.
func (s *stallTracker) update(now time.Time, waits map[inbox]int64) {
	last, gap := s.checkedAt, now.Sub(s.checkedAt) > 3*s.every
	s.checkedAt = now
	if s.byInbox == nil {
		s.byInbox = map[inbox]*stall{}
	}
	for at, position := range waits {
		before := s.byInbox[at]
		if before == nil || before.position != position || gap {
			s.byInbox[at] = &stall{inbox: at, position: position, since: now, seenAt: now, nextLog: now.Add(stallLogChecks * s.every)}
			continue
		}
		absent := last.Sub(before.seenAt)
		before.since, before.nextLog, before.seenAt = before.since.Add(absent), before.nextLog.Add(absent), now
	}
	maps.DeleteFunc(s.byInbox, func(_ inbox, at *stall) bool {
		return at.seenAt.Before(now) && !(at.clientRenewed && now.Sub(at.seenAt) < stallRenewChecks*s.every)
	})
}

// stalled returns the inboxes that made no progress for stallLogChecks, the longest first.
func (s *stallTracker) stalled(now time.Time) []*stall {
	var still []*stall
	for _, at := range s.byInbox {
		if at.seenAt.Equal(s.checkedAt) && now.Sub(at.since) >= stallLogChecks*s.every {
			still = append(still, at)
		}
	}
	slices.SortFunc(still, func(a, b *stall) int {
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		return strings.Compare(a.String(), b.String())
	})
	return still
}

// logDue reports whether the stall is to be logged now, and schedules the next time.
func (s *stall) logDue(now time.Time) bool {
	if now.Before(s.nextLog) {
		return false
	}
	s.nextLog = now.Add(now.Sub(s.since))
	return true
}

func (s *stall) String() string { return s.topic + "/" + strconv.Itoa(int(s.partition)) }

// InboxStalledError ends a process if an inbox made no progress even after its worker got a new client.
type InboxStalledError struct {
	Inbox string // topic/partition
	For   time.Duration
	Why   string
}

func (e *InboxStalledError) Error() string {
	return fmt.Sprintf("%s has made no progress for %s, even with a new client; the process ends so that another can take over: %s", e.Inbox, e.For.Round(time.Second), e.Why)
}

// stallWatch checks the workers of a scheduler process from outside. A worker can stall for reasons that it can't
// see: its client waits for offsets that an open transaction holds back, a pause never ends, a fetch is never
// answered. An inbox is stalled if this process owns it, records wait in it, and the group's offset doesn't
// change, while the cluster responds and nothing pauses the inbox on purpose.
type stallWatch struct {
	n         *Instance
	status    *partitionStatus
	stalls    stallTracker
	positions map[inbox]int64 // as of the latest check
}

// run checks until ctx ends, or returns an InboxStalledError.
func (w *stallWatch) run(ctx context.Context) error {
	w.stalls.every = w.n.stallCheckEvery()
	tick := time.NewTicker(w.stalls.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		waits, err := w.waitingInboxes(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			w.n.log.Debug("check for stalled partitions failed", "error", err)
			continue
		}
		now := time.Now()
		w.stalls.update(now, waits)
		if err := w.handleStalls(ctx, now); err != nil {
			return err
		}
	}
}

// waitingInboxes returns the positions of the inboxes of this process in which records wait, without paused ones.
func (w *stallWatch) waitingInboxes(ctx context.Context) (map[inbox]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, stallCheckWithin)
	defer cancel()
	ns := w.n.Kafka.Namespace
	commits, err := w.n.Admin.Commits(ctx, ns.SchedulerGroup())
	if err != nil {
		return nil, err
	}
	w.updatePositions(commits)
	starts, ends, err := w.n.Admin.InboxBounds(ctx)
	if err != nil {
		return nil, err
	}
	waits := waitingPositions(ns.InboxTopics(), commits, starts, ends)
	maps.DeleteFunc(waits, func(at inbox, _ int64) bool {
		_, owns := w.status.owner(at.partition % w.n.Partitions)
		return !owns || w.status.paused(at.topic, at.partition)
	})
	return waits, nil
}

// updatePositions compares the group's offsets with the previous ones and records progress.
func (w *stallWatch) updatePositions(commits map[string]map[int32]int64) {
	before := w.positions
	w.positions = map[inbox]int64{}
	for topic, ps := range commits {
		for p, position := range ps {
			at := inbox{topic, p}
			if was, is := before[at]; is && was != position {
				w.status.inboxProgressed(at)
			}
			w.positions[at] = position
		}
	}
}

// waitingPositions returns the positions of inboxes in which committed records wait; -1: nothing was committed
// yet. Records that were deleted unread don't count, nor do records that an open transaction holds back.
func waitingPositions(topics []string, commits, starts, ends map[string]map[int32]int64) map[inbox]int64 {
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

// handleStalls logs stalls, gives their workers new clients, and finally ends the process.
func (w *stallWatch) handleStalls(ctx context.Context, now time.Time) error {
	still := w.stalls.stalled(now)
	var why stallReasons
	if len(still) > 0 {
		why = w.n.findStallReasons(ctx)
	}
	w.n.metrics.stalled.Reset() // after the brokers were asked: a scrape meanwhile sees what stands still
	for _, s := range still {
		stood := now.Sub(s.since)
		w.n.metrics.stalled.WithLabelValues(s.topic, strconv.Itoa(int(s.partition))).Set(stood.Seconds())
		reason, helpless := why.reasonFor(s.inbox, w.n.Partitions)
		if unreadable := w.status.readFault(s.topic, s.partition); unreadable != nil {
			reason, helpless = unreadable.Error(), true
		}
		if s.logDue(now) {
			w.n.log.Warn("records wait in an inbox, but its worker makes no progress", "topic", s.topic, "partition", s.partition, "position", s.position,
				"since", s.since.UTC().Format(time.RFC3339), "why", reason)
		}
		switch {
		case helpless:
		case stood >= stallEndChecks*w.stalls.every && s.clientRenewed:
			return &InboxStalledError{s.String(), stood, reason}
		case stood >= stallRenewChecks*w.stalls.every && !s.clientRenewed:
			w.renewClient(s.partition % w.n.Partitions)
		}
	}
	return nil
}

// renewClient closes the client of a worker, which then gets a new one. All inboxes of the worker restart.
func (w *stallWatch) renewClient(p int32) {
	owner, owns := w.status.owner(p)
	if !owns {
		return
	}
	w.n.log.Warn("stalled worker gets a new client", "owner", owner, "partition", p)
	for _, s := range w.stalls.byInbox {
		if of, owns := w.status.owner(s.partition % w.n.Partitions); owns && of == owner {
			s.clientRenewed = true
		}
	}
	go w.status.closeWorker(owner) // a client that hangs takes seconds to close
}

// stallReasons is what the cluster says about stalled partitions.
type stallReasons struct {
	leaderless map[string][]int32
	unstable   []int32
	hanging    []*logreader.HangingError
	events     string
	unknown    error // why some of it is unknown
}

// findStallReasons asks the cluster what may hold partitions up.
func (n *Instance) findStallReasons(ctx context.Context) (why stallReasons) {
	ctx, cancel := context.WithTimeout(ctx, stallCheckWithin)
	defer cancel()
	var errs [3]error
	why.leaderless, errs[0] = n.Admin.LeaderlessPartitions(ctx)
	why.unstable, errs[1] = n.Admin.UnstablePartitions(ctx, n.Partitions)
	why.hanging, errs[2] = n.Admin.Hanging(ctx)
	why.events, why.unknown = n.Kafka.Namespace.Events(), errors.Join(errs[:]...)
	return why
}

// reasonFor returns why an inbox is stalled. helpless: a new client can't help, only an operator of the cluster.
func (why *stallReasons) reasonFor(at inbox, partitions int32) (reason string, helpless bool) {
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
		reasons = append(reasons, fmt.Sprintf("some checks failed: %v", why.unknown))
	}
	if len(reasons) == 0 {
		return "no reason was found", false
	}
	return strings.Join(reasons, "; "), helpless
}
