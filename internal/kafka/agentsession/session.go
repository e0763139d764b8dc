package agentsession

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/listener"
)

const (
	// DefaultSessionTimeout is how long a dead agent keeps its partitions before they are reassigned.
	DefaultSessionTimeout = 10 * time.Second
	// DefaultCommitEvery is the default interval of commits. A killed agent repeats at most the work it finished since
	// the last commit.
	DefaultCommitEvery = 200 * time.Millisecond

	// sessionMetadataAge bounds how long it takes to discover partitions that were added to a topic. Schedulers send to
	// new partitions only after this plus the time of a rebalance (scheduler's newPartitionDelay).
	sessionMetadataAge = 5 * time.Second
	// defaultPollWait, plus one check whether the topic exists, is shorter than the time after which the watchdog
	// (internal/watchdog) considers a loop hung.
	defaultPollWait      = 5 * time.Second
	sessionCommitTimeout = 5 * time.Second
	// checkRecreatedTimeout bounds a request for the id of the topic.
	checkRecreatedTimeout = 2 * time.Second
	// sessionCommitShare is the divisor of the session timeout that bounds a commit within a rebalance. The other
	// members wait that long for it.
	sessionCommitShare = 2
	// ownersReplyShare is the divisor of that bound for the wait for replies of SendAsOwner; the commit has the rest.
	ownersReplyShare = 2
)

// ErrPartitionLost is the cancellation cause of a HeldContext.
var ErrPartitionLost = errors.New("the partition was reassigned to another member")

// Listener observes a session; any of its funcs may be nil. They are called from the client's goroutines and
// must not block.
type Listener struct {
	// Joined is called after the member joined the group and after each rebalance, even if no partitions were assigned.
	Joined func()
	// Assigned and Lost receive the partitions that were assigned and lost.
	Assigned, Lost func(partitions []int32)
	// Committed receives the committed offset: the lowest unfinished one.
	Committed func(partition int32, offset int64)
	// TransientError receives errors that don't end the session: a failed commit, which is retried, a rebalance, or
	// commit metadata that Waybill didn't write.
	TransientError func(err error)
}

// Config says what a Session consumes.
type Config struct {
	kafka.Config
	// Group and Topic are the consumer group and the request topic of one agent.
	Group, Topic string
	// InstanceID makes the member static: it keeps its partitions if it restarts within the session timeout. Empty:
	// dynamic.
	InstanceID string
	// LeaveOnClose reports, when the session closes, whether a static member leaves its group, so that its partitions
	// are reassigned at once. Nil: it stays.
	LeaveOnClose func() bool
	// SessionTimeout is the time without heartbeats after which a member's partitions are reassigned. It is also how
	// long a rebalance waits for a member. 0: DefaultSessionTimeout. Brokers reject less than 6 s by default.
	SessionTimeout time.Duration
	// CommitEvery is the interval of commits while there is something to commit; 0: DefaultCommitEvery.
	CommitEvery time.Duration
	// FetchMaxWait is how long a fetch waits for requests; 0: DefaultFetchMaxWait.
	FetchMaxWait time.Duration
	// MaxPollRecords bounds what one Poll returns; 0: DefaultMaxPollRecords.
	MaxPollRecords int
	// PollWait is how long a Poll waits for records; 0: 5 s.
	PollWait time.Duration
	Listener Listener
}

// Session is one agent's membership in the consumer group of its requests, and the producer of its replies. Requests
// may finish in any order. The committed offset never passes an unfinished request (see Tracker). So each request is
// delivered at least once, and again only if its owner died between finishing it and the next commit. One goroutine
// polls; the other methods are safe for concurrent use.
type Session struct {
	cl          *kgo.Client
	cfg         Config
	tail        *brokerclock.Tail
	written     *brokerclock.Writes
	quarantines groupmember.Quarantines // used by Poll's goroutine only
	missing     kafka.MissingTopic      // likewise
	topicID     string                  // id of the topic that the session reads
	refused     kafka.ErrorEpisode      // used by Poll's goroutine only: the cluster refuses the member

	// life ends with Close, which ends the commit loop.
	life    context.Context
	end     context.CancelFunc
	loop    sync.WaitGroup
	closing sync.Once
	replies replies

	mu           sync.Mutex
	owned        map[int32]*ownedPartition
	fromOldTopic map[int32]bool // committed to an earlier topic of this name
	gate         *inboxgate.Gate
	// fencedSince is when the group began to answer that another member has this one's instance id; zero: it doesn't.
	fencedSince    time.Time
	refusedReplies kafka.ErrorEpisode // the cluster refuses replies
	repliesRefused error              // set after RefusedMax; ends the session
	// circuit is the last argument of ReportCircuit.
	circuit string
	// committing is a lock of one slot: if two commits overlapped, the older could overwrite the newer. It is a
	// channel, not a mutex, because its waiters have a deadline.
	committing chan struct{}
	commitNow  chan struct{} // capacity 1; a value: CommitSoon was called
}

// ownedPartition is the state of an assigned partition.
type ownedPartition struct {
	tracker *Tracker
	ctx     context.Context
	lose    context.CancelCauseFunc
	// mayHaveStartedBelow is the topic's end offset when the partition was assigned; see MayHaveStarted.
	mayHaveStartedBelow int64
	// offset and metadata are those of the last commit.
	offset   int64
	metadata string
	// fetched: the committed offset was fetched, so that the client reads the partition.
	fetched bool
}

// Open joins the group. It returns before partitions are assigned. ctx bounds the check that the brokers are
// reachable and the topic exists.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	if cfg.Group == "" || cfg.Topic == "" {
		return nil, fmt.Errorf("open session: group %q and topic %q must both be set", cfg.Group, cfg.Topic)
	}
	cfg.SessionTimeout = cmp.Or(cfg.SessionTimeout, DefaultSessionTimeout)
	cfg.FetchMaxWait = cmp.Or(cfg.FetchMaxWait, groupmember.DefaultFetchMaxWait)
	cfg.CommitEvery = cmp.Or(cfg.CommitEvery, DefaultCommitEvery)
	cfg.MaxPollRecords = cmp.Or(cfg.MaxPollRecords, groupmember.DefaultMaxPollRecords)
	cfg.PollWait = cmp.Or(cfg.PollWait, defaultPollWait)
	cfg.Listener = *listener.Complete(&cfg.Listener)
	id, err := requireTopic(ctx, cfg.Config, cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("open session of group %s: %w", cfg.Group, err)
	}
	cfg.Reached = true
	s := &Session{cfg: cfg, topicID: id, owned: make(map[int32]*ownedPartition), fromOldTopic: map[int32]bool{}, quarantines: groupmember.Quarantines{}, committing: make(chan struct{}, 1),
		commitNow: make(chan struct{}, 1), tail: brokerclock.NewTail(cfg.Clock, cfg.Namespace)}
	s.replies.now, s.replies.narrow = cfg.Clock.ProcessNow, kafka.NarrowTopics{}
	s.replies.queues, s.replies.topics = map[kafka.TopicPartition]*replyQueue{}, map[string]*replyTopic{}
	s.replies.maxBytes = func(topic string) int { return kafka.TopicMaxMessageBytes(s.life, s.cl, topic) }
	s.replies.onAcknowledged = func(r *kgo.Record, sent time.Time) { s.written.Observe(r, sent) }
	s.replies.onOwnersReply = func(o *ownedPartition, offset int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		o.tracker.Done(offset)
	}
	s.life, s.end = context.WithCancel(context.Background())
	if s.cl, err = kgo.NewClient(append(enforceReplyDeadlines(cfg.Config, s.replies.overdue).ClientOptions(), s.options()...)...); err != nil {
		s.end()
		return nil, fmt.Errorf("open session of group %s: %w", cfg.Group, err)
	}
	s.replies.cl = s.cl
	s.written = brokerclock.NewWrites(cfg.Clock, cfg.Namespace, s.cl)
	s.gate = inboxgate.New(groupmember.GatedClient{Client: func() *kgo.Client { return s.cl }})
	s.loop.Go(s.commitLoop)
	return s, nil
}

// requireTopic returns the id of a topic, or an error that says how to create it.
func requireTopic(ctx context.Context, c kafka.Config, topic string) (id string, err error) {
	a, err := kafkaadmin.Open(c)
	if err != nil {
		return "", err
	}
	defer a.Close()
	_, ok, err := a.TopicPartitions(ctx, topic)
	if err == nil && !ok {
		create := "`waybill topics create`"
		if agent, is := c.Namespace.AgentOf(topic); is { // `topics create` creates an agent's topic only with --agent
			create = "`waybill workflow apply` of a workflow that names the agent, or `waybill topics create --agent " + agent + "`"
		}
		err = fmt.Errorf("topic %s: %w; create it with %s", topic, kafka.ErrNoTopic, create)
	}
	if err != nil {
		return "", err
	}
	return a.TopicID(ctx, topic)
}

func (s *Session) options() []kgo.Opt {
	opts := append(kafka.ProduceOptions(),
		kgo.RecordPartitioner(s.replies.partitioner()),
		kgo.WithHooks(s.tail),
		kgo.ConsumerGroup(s.cfg.Group),
		kgo.ConsumeTopics(s.cfg.Topic),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(s.cfg.SessionTimeout),
		kgo.HeartbeatInterval(groupmember.HeartbeatInterval(s.cfg.SessionTimeout)),
		// A session does nothing in a rebalance but commit (see onRevoked). So a rebalance waits for a member no longer
		// than the group waits for heartbeats. The client also abandons an unanswered join only 10 s after this
		// timeout: with the client's default of a minute, the group would be blocked for 70 s.
		kgo.RebalanceTimeout(s.cfg.SessionTimeout),
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// A transaction marker occupies an offset. The session must pass it: otherwise the committed offset would never
		// reach the end of the log, and an idle group would appear to lag.
		kgo.KeepControlRecords(),
		// With the client's default of 5 s, a resumed session would wait up to that long for its first records.
		kgo.FetchMaxWait(s.cfg.FetchMaxWait),
		// Without a commit the group starts at the log's start, to process requests written before its first agent
		// started.
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(s.onAssigned),
		kgo.OnOffsetsFetched(s.onOffsetsFetched),
		kgo.AdjustFetchOffsetsFn(s.adjustOffsets),
		kgo.MetadataMaxAge(sessionMetadataAge),
		kgo.OnPartitionsRevoked(s.onRevoked),
		kgo.OnPartitionsLost(s.onLost),
		kgo.AllowIdempotentProduceCancellation(), // see Send
	)
	if s.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(s.cfg.InstanceID))
	}
	return opts
}

// Poll waits for the next requests and returns at most MaxPollRecords of them. It leaves out requests that an earlier
// owner finished. It returns none after PollWait, whatever the brokers do: a Poll that takes much longer hangs. An
// error is final: the caller closes the session and opens another. Temporary errors are reported to the Listener
// instead.
func (s *Session) Poll(ctx context.Context) ([]events.Record, error) {
	for until := time.Now().Add(s.cfg.PollWait); ; {
		if err := s.repliesError(); err != nil {
			return nil, fmt.Errorf("replies of %s: %w", s.cfg.Group, err)
		}
		fetches := s.poll(ctx, until)
		if err := ctx.Err(); err != nil && fetches.NumRecords() == 0 {
			return nil, err
		}
		gone, err := s.classifyErrors(fetches)
		if err != nil {
			return nil, err
		}
		s.tail.Observe(fetches)
		if records := s.registerRecords(fetches.Records()); len(records) > 0 {
			s.missing = kafka.MissingTopic{}
			return records, nil
		}
		if !time.Now().Before(until) {
			return nil, nil
		}
		if gone {
			_ = backoff.Sleep(ctx, kafka.TopicMissingRetryInterval)
		}
	}
}

// classifyErrors sorts the errors of a poll. It reports temporary ones to the Listener and returns the first fatal one.
// gone: the topic doesn't exist, perhaps temporarily.
func (s *Session) classifyErrors(fetches kgo.Fetches) (gone bool, fatal error) {
	fetches.EachError(func(topic string, p int32, err error) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return // the poll's own deadline or the caller's context; Poll checks both
		}
		err = fmt.Errorf("poll %s/%d as %s: %w", topic, p, s.cfg.Group, err)
		switch {
		case kafka.IsTopicMissing(err): // every partition repeats it with each poll; it is reported once
			if !gone && s.missing.ReportDue(time.Now()) {
				s.report(fmt.Errorf("%w; if the topic was deleted, create it with `waybill topics create`: the new one is read then", err))
			}
			gone = true
		default:
			final := s.fatalError(err, time.Now())
			if final == nil {
				s.report(kafka.FinalError(err))
			} else if fatal == nil {
				fatal = final
			}
		}
	})
	if gone && fatal == nil {
		fatal = s.checkRecreated()
	}
	return gone, fatal
}

// checkRecreated returns an error if the topic was deleted and created again. A new session reads the new topic.
func (s *Session) checkRecreated() error {
	ctx, cancel := context.WithTimeout(s.life, checkRecreatedTimeout)
	defer cancel()
	listed, err := kadm.NewClient(s.cl).ListTopics(ctx, s.cfg.Topic)
	d := listed[s.cfg.Topic]
	if is := kafka.FormatTopicID(d.ID); err == nil && d.Err == nil && is != "" && is != s.topicID {
		return &kafka.RecreatedError{Topic: s.cfg.Topic, Was: s.topicID, Is: is}
	}
	return nil // the topic doesn't exist or its id is unknown: the next poll checks again
}

// poll waits for the next requests until the deadline, or until the next retry of an unreadable partition is due.
func (s *Session) poll(ctx context.Context, until time.Time) kgo.Fetches {
	s.mu.Lock()
	s.gate.ResumeDue(time.Now())
	next := s.gate.NextDue()
	s.mu.Unlock()
	if !next.IsZero() && next.Before(until) {
		until = next
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	fetches := s.cl.PollRecords(ctx, s.cfg.MaxPollRecords)
	found := groupmember.TakeUnreadable(fetches)
	for _, x := range found {
		s.report(fmt.Errorf("%s/%d is paused: its broker doesn't have records that were written: %w", x.At.Topic, x.At.Partition, x.Err))
	}
	if len(found) > 0 || len(s.quarantines) > 0 {
		s.quarantine(found, fetches, time.Now())
	}
	return fetches
}

// quarantine pauses unreadable partitions and removes those that became readable again.
func (s *Session) quarantine(found []groupmember.UnreadablePartition, fetches kgo.Fetches, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range found {
		s.quarantines.Pause(s.gate, x.At, now)
	}
	fetches.EachPartition(func(fp kgo.FetchTopicPartition) {
		if len(fp.Records) > 0 {
			s.quarantines.Read(s.gate, kafka.TopicPartition{Topic: fp.Topic, Partition: fp.Partition})
		}
	})
}

// fatalError returns the error that ends the session because of err; nil: the session continues.
func (s *Session) fatalError(err error, now time.Time) error {
	switch kafka.ClassOf(err) {
	case kafka.ClassRetried:
		return nil
	case kafka.ClassRefused:
		if now.Sub(s.refused.Observe(now, kafka.RefusedGap)) <= kafka.RefusedMax {
			return nil
		}
		return &kafka.RefusedError{Err: err, Persistent: true}
	case kafka.ClassFenced:
		return s.duplicate(err, now)
	default:
		return kafka.FinalError(err)
	}
}

// duplicate returns the error of a session whose instance id another process has taken; nil: that isn't established.
func (s *Session) duplicate(err error, now time.Time) error {
	s.mu.Lock()
	if s.fencedSince.IsZero() {
		s.fencedSince = now
	}
	since := s.fencedSince
	s.mu.Unlock()
	if now.Sub(since) <= groupmember.DuplicateAfter(s.cfg.SessionTimeout) {
		return nil
	}
	member, _ := s.cl.GroupMetadata()
	return groupmember.FindDuplicate(s.cl, s.cfg.Group, s.cfg.InstanceID, member, err)
}

// registerRecords registers records with their trackers. It returns those that have to be processed: no markers,
// nothing that an earlier owner finished, and nothing of partitions that were lost meanwhile.
func (s *Session) registerRecords(fetched []*kgo.Record) []events.Record {
	s.mu.Lock()
	work := fetched[:0]
	for _, r := range fetched {
		o := s.owned[r.Partition]
		switch {
		case o == nil || !o.tracker.Deliver(r.Offset):
		case r.Attrs.IsControl():
			o.tracker.Done(r.Offset)
		default:
			work = append(work, r)
		}
	}
	s.mu.Unlock()
	return kafka.FromKgo(work, make([]events.Record, 0, len(work)))
}

// HeldContext returns a context that ends, with the cause ErrPartitionLost, when the session loses the partition.
// Another member then processes its requests, so the caller must abandon them without calling Done. It ends before the
// last commit of a partition that is revoked. For a partition that the session doesn't own, it has already ended.
func (s *Session) HeldContext(partition int32) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owned[partition]; o != nil {
		return o.ctx
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrPartitionLost)
	return ctx
}

// Done marks a request as finished: its reply is acknowledged, or its deadline has passed. The order doesn't matter.
// For a partition that was lost it has no effect.
func (s *Session) Done(partition int32, offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owned[partition]; o != nil {
		o.tracker.Done(offset)
	}
}

// CommitSoon requests a commit now rather than within CommitEvery. It returns at once. Calls during a commit cause one
// more commit. A failed commit is retried at the usual interval. After Close it has no effect.
func (s *Session) CommitSoon() {
	select {
	case s.commitNow <- struct{}{}:
	default:
	}
}

// Pause stops fetching until Resume, when the limit of concurrent work is reached. Membership and heartbeats continue.
// A Poll in progress may still return records that were fetched earlier. Pause and Resume are idempotent.
func (s *Session) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate.Pause(inboxgate.Inbox{Topic: s.cfg.Topic, Partition: inboxgate.AllPartitions}, inboxgate.PausedForSlots, time.Time{})
}

// Resume ends a Pause.
func (s *Session) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate.Resume(inboxgate.Inbox{Topic: s.cfg.Topic, Partition: inboxgate.AllPartitions}, inboxgate.PausedForSlots)
}

// Close commits what is finished, leaves the group (a static member only if LeaveOnClose returns true) and closes the
// connections. Pending replies fail. ctx bounds it. It returns the error of the last commit or of leaving; the session
// is closed in any case. If the commit is refused because the group has a new generation, that is reported as a
// TransientError and not returned: another member receives the requests again.
func (s *Session) Close(ctx context.Context) error {
	var err error
	s.closing.Do(func() {
		s.end()
		s.loop.Wait()
		s.stopOwnersReplies(ctx, nil)
		if err = s.commit(ctx, nil); isOldGeneration(err) {
			s.report(err)
			err = nil
		}
		err = errors.Join(err, groupmember.Membership{Group: s.cfg.Group, Instance: s.cfg.InstanceID, LeavesOnClose: s.cfg.LeaveOnClose}.Leave(ctx, s.cl))
		s.cl.Close()
		s.dropPartitions(nil)
	})
	return err
}

// isOldGeneration reports whether a commit was refused because the group has a new generation. The coordinator then
// refuses all partitions of the commit.
func isOldGeneration(err error) bool {
	return errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.UnknownMemberID)
}

func (s *Session) report(err error) {
	s.cfg.Listener.TransientError(err)
}

func (s *Session) onAssigned(_ context.Context, cl *kgo.Client, added map[string][]int32) {
	s.cfg.Listener.Joined()
	s.mu.Lock()
	s.fencedSince = time.Time{}
	s.mu.Unlock()
	ps := added[s.cfg.Topic]
	if len(ps) == 0 {
		return
	}
	s.tail.Forget(ps)
	came := make(map[int32]*ownedPartition, len(ps))
	s.mu.Lock()
	for _, p := range ps {
		o := &ownedPartition{tracker: &Tracker{low: -1, read: -1}, offset: -1, mayHaveStartedBelow: math.MaxInt64}
		o.ctx, o.lose = context.WithCancelCause(context.Background())
		s.owned[p], came[p] = o, o
	}
	s.mu.Unlock()
	go s.learnEnds(cl, came) // ends when the end offsets are known, the partitions are lost, or the session closes
	s.cfg.Listener.Assigned(ps)
}

// onOffsetsFetched runs after onAssigned and before the first fetch. Its error ends the client's session in the group, and
// the member joins again. The client would leave out a partition whose offset it didn't get, and never read it.
func (s *Session) onOffsetsFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	var errs []error
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				errs = append(errs, s.restoreTracker(p.Partition, p.ErrorCode, p.Offset, p.Metadata))
			}
		}
	}
	for _, t := range resp.Topics { // versions before 8 have a single group
		for _, p := range t.Partitions {
			errs = append(errs, s.restoreTracker(p.Partition, p.ErrorCode, p.Offset, p.Metadata))
		}
	}
	return cmp.Or(errors.Join(errs...), s.checkFetched())
}

// checkFetched returns an error if a partition has no fetched offset.
func (s *Session) checkFetched() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, o := range s.owned {
		if !o.fetched {
			return fmt.Errorf("the offset of %s/%d was not fetched", s.cfg.Topic, p)
		}
	}
	return nil
}

// restoreTracker restores the state of a partition from its last commit. The error is that of fetching it.
func (s *Session) restoreTracker(partition int32, code int16, offset int64, metadata *string) error {
	if err := kerr.ErrorForCode(code); err != nil {
		return fmt.Errorf("fetch the offset of %s/%d: %w", s.cfg.Topic, partition, err)
	}
	s.restoreCommit(partition, offset, metadata)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owned[partition]; o != nil {
		o.fetched = true
	}
	return nil
}

func (s *Session) restoreCommit(partition int32, offset int64, metadata *string) {
	if offset < 0 {
		return // without a commit there is no state to restore
	}
	text := ""
	if metadata != nil {
		text = *metadata
	}
	if id := topicIn(text); id != "" && s.topicID != "" && id != s.topicID {
		s.report(fmt.Errorf("partition %d of %s: the group's offset %d belongs to the deleted topic with the id %s and isn't used: the topic is read from its start", partition, s.cfg.Topic, offset, id))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fromOldTopic[partition] = true
		return
	}
	tracker, err := NewTracker(offset, text)
	if err != nil {
		s.report(fmt.Errorf("partition %d of %s: finished requests may run again: %w", partition, s.cfg.Topic, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owned[partition]; o != nil {
		o.tracker, o.offset, o.metadata = tracker, offset, text
	}
}

// adjustOffsets runs after onOffsetsFetched. It replaces offsets that were committed to an earlier topic of this name
// with the log's start.
func (s *Session) adjustOffsets(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range offsets[s.cfg.Topic] {
		if s.fromOldTopic[p] {
			offsets[s.cfg.Topic][p] = kgo.NewOffset().AtStart()
			delete(s.fromOldTopic, p)
		}
	}
	return offsets, nil
}

// onRevoked runs before another member can get the partitions, so a commit still tells that member what is finished.
// Replies of SendAsOwner have ended before the commit: one that is written later could contradict the new owner.
func (s *Session) onRevoked(ctx context.Context, _ *kgo.Client, gone map[string][]int32) {
	ps := gone[s.cfg.Topic]
	if len(ps) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.revokeTimeout())
	defer cancel()
	s.stopOwnersReplies(ctx, ps)
	if err := s.commit(ctx, ps); err != nil {
		s.report(err)
	}
	s.dropPartitions(ps)
}

// onLost runs when the partitions may already have been reassigned: nothing can be committed.
func (s *Session) onLost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	if ps := gone[s.cfg.Topic]; len(ps) > 0 {
		s.dropPartitions(ps)
	}
}

// revokeTimeout bounds what the session does in a revocation.
func (s *Session) revokeTimeout() time.Duration {
	return min(sessionCommitTimeout, s.cfg.SessionTimeout/sessionCommitShare)
}

// stopOwnersReplies ends the contexts of partitions (nil: of all) and withdraws their waiting replies of SendAsOwner.
// It waits for those in flight.
func (s *Session) stopOwnersReplies(ctx context.Context, ps []int32) {
	s.endContexts(ps)
	ctx, cancel := context.WithTimeout(ctx, s.revokeTimeout()/ownersReplyShare)
	defer cancel()
	for _, landed := range s.replies.withdraw() {
		select {
		case <-landed:
		case <-ctx.Done():
			s.report(fmt.Errorf("replies of %s that report no effect are still being sent; their partitions are reassigned: %w", s.cfg.Group, ctx.Err()))
			return
		}
	}
}

// endContexts ends the contexts of partitions; nil: of all. It returns the partitions.
func (s *Session) endContexts(ps []int32) []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ps == nil {
		ps = slices.Collect(maps.Keys(s.owned))
	}
	for _, p := range ps {
		if o := s.owned[p]; o != nil {
			o.lose(ErrPartitionLost)
		}
	}
	return ps
}

// dropPartitions removes partitions; nil: all of them.
func (s *Session) dropPartitions(ps []int32) {
	ps = s.endContexts(ps)
	s.replies.withdraw()
	s.mu.Lock()
	for _, p := range ps {
		delete(s.owned, p)
	}
	s.mu.Unlock()
	if len(ps) > 0 {
		s.cfg.Listener.Lost(ps)
	}
}
