package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

const (
	// DefaultAgentSessionTimeout is how long a dead agent keeps its partitions.
	DefaultAgentSessionTimeout = 10 * time.Second
	// DefaultCommitEvery is how much finished work a killed agent repeats.
	DefaultCommitEvery = 200 * time.Millisecond

	// sessionMetadataAge is how soon partitions are noticed that were added to a topic. Schedulers send
	// to them later than that and a rebalance take (scheduler's addedAfter).
	sessionMetadataAge = 5 * time.Second
	// defaultPollWait is less than what a health check takes for a loop that hangs (internal/watchdog), by a look whether
	// the topic is there.
	defaultPollWait      = 5 * time.Second
	sessionCommitTimeout = 5 * time.Second
	// sessionCommitShare: a commit within a rebalance has this part of the session
	// timeout, which is how long the others wait for it.
	sessionCommitShare = 2
)

// ErrPartitionLost is the cause with which the context of Held ends.
var ErrPartitionLost = errors.New("the partition has gone to another member")

// SessionListener observes a session; any of its funcs may be nil. They are
// called from the client's goroutines and must not block.
type SessionListener struct {
	// Joined: the group has taken the member in, or has divided the partitions
	// again, whatever it got.
	Joined func()
	// Assigned and Lost tell which partitions came and went.
	Assigned, Lost func(partitions []int32)
	// Committed tells the lowest unfinished offset after each commit of it.
	Committed func(partition int32, offset int64)
	// Trouble is an error that the session goes on from: a commit that is
	// tried again, a rebalance, metadata of a commit that is not ours.
	TransientError func(err error)
}

// SessionConfig says what a Session consumes.
type SessionConfig struct {
	Config
	// Group and Topic: those of one agent.
	Group, Topic string
	// InstanceID makes the member static: a restart within the session timeout
	// keeps its partitions. Empty: dynamic.
	InstanceID string
	// LeaveOnClose reports, when the session closes, whether a static member
	// leaves its group, so that others take its partitions at once. Nil: it stays.
	LeaveOnClose func() bool
	// SessionTimeout after which a silent member's partitions go to others, and
	// how long a rebalance waits for a member; 0: DefaultAgentSessionTimeout.
	// Brokers refuse less than 6 s by default.
	SessionTimeout time.Duration
	// CommitEvery is the interval of commits while something changes; 0:
	// DefaultCommitEvery.
	CommitEvery time.Duration
	// FetchMaxWait is how long a fetch waits for requests; 0:
	// DefaultFetchMaxWait.
	FetchMaxWait time.Duration
	// MaxPollRecords bounds what one Poll returns; 0: DefaultMaxPollRecords.
	MaxPollRecords int
	// PollWait is after how long a Poll returns without records; 0: 5 s.
	PollWait time.Duration
	Listener SessionListener
}

// Session is one agent's membership in the consumer group of its requests, and
// the producer of its replies. Requests are finished in any order; what is
// committed is never more than what is finished (see Tracker), so a request is
// seen at least once, and again only if its owner died between finishing it and
// the next commit. One goroutine polls; the other methods are safe for concurrent use.
type Session struct {
	cl          *kgo.Client
	cfg         SessionConfig
	tail        tailClock
	written     writtenClock
	quarantines quarantines  // of Poll's goroutine
	missing     missingTopic // likewise: of its topic
	topicID     string       // of the topic that it reads
	refused     errorEpisode // likewise: of what the cluster doesn't permit

	// life ends with Close, and then the commit loop.
	life    context.Context
	end     context.CancelFunc
	loop    sync.WaitGroup
	closing sync.Once
	replies replies

	mu           sync.Mutex
	owned        map[int32]*ownedPartition
	fromOldTopic map[int32]bool // whose commit was to another topic
	gate         *inboxgate.Gate
	// fencedSince is since when the group says that another has its name; zero: it was taken since.
	fencedSince    time.Time
	refusedReplies errorEpisode // of replies that the cluster doesn't permit
	repliesRefused error        // it hasn't for too long
	// circuit is what ReportCircuit was told last.
	circuit string
	// committing holds one while a commit is under way: two must not cross, or
	// the older would win. No mutex, since who waits for it has a limit.
	committing chan struct{}
	commitNow  chan struct{} // CommitSoon was called; of one place
}

// ownedPartition is what a session keeps of a partition while it has it.
type ownedPartition struct {
	tracker *Tracker
	ctx     context.Context
	lose    context.CancelCauseFunc
	// mayHaveStartedBelow is the end of the topic when the partition was assigned; see MayHaveStarted.
	mayHaveStartedBelow int64
	// The last commit.
	offset   int64
	metadata string
}

// OpenSession joins the group. It returns before partitions are assigned; ctx
// bounds the check that the brokers can be reached and the topic exists.
func OpenSession(ctx context.Context, cfg SessionConfig) (*Session, error) {
	if cfg.Group == "" || cfg.Topic == "" {
		return nil, fmt.Errorf("open session: group %q and topic %q must both be set", cfg.Group, cfg.Topic)
	}
	orDefault(&cfg.SessionTimeout, DefaultAgentSessionTimeout)
	orDefault(&cfg.FetchMaxWait, DefaultFetchMaxWait)
	orDefault(&cfg.CommitEvery, DefaultCommitEvery)
	orDefault(&cfg.MaxPollRecords, DefaultMaxPollRecords)
	orDefault(&cfg.PollWait, defaultPollWait)
	id, err := requireTopic(ctx, cfg.Config, cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("open session of group %s: %w", cfg.Group, err)
	}
	cfg.Reached = true
	s := &Session{cfg: cfg, topicID: id, owned: make(map[int32]*ownedPartition), fromOldTopic: map[int32]bool{}, quarantines: quarantines{}, committing: make(chan struct{}, 1),
		commitNow: make(chan struct{}, 1)}
	s.replies.now, s.replies.narrow = cfg.processNow, narrowTopics{}
	s.replies.maxBytes = func(topic string) int { return maxMessageBytes(s.life, s.cl, topic) }
	s.replies.onAcknowledged = func(r *kgo.Record, sent time.Time) { s.written.observeWrite(cfg.Config, s.cl, r, sent) }
	s.life, s.end = context.WithCancel(context.Background())
	if s.cl, err = kgo.NewClient(append(cfg.Config.enforceReplyDeadlines(s.replies.overdue).options(), s.options()...)...); err != nil {
		s.end()
		return nil, fmt.Errorf("open session of group %s: %w", cfg.Group, err)
	}
	s.replies.cl = s.cl
	s.gate = inboxgate.New(gatedClient{func() *kgo.Client { return s.cl }})
	s.loop.Go(s.commitLoop)
	return s, nil
}

// requireTopic returns the id of a topic.
func requireTopic(ctx context.Context, c Config, topic string) (id string, err error) {
	a, err := OpenAdmin(c)
	if err != nil {
		return "", err
	}
	defer a.Close()
	_, ok, err := a.TopicPartitions(ctx, topic)
	if err == nil && !ok {
		create := "`waybill topics create`"
		if agent, is := c.Namespace.AgentOf(topic); is { // whose topic that makes if it is named, or a workflow names it
			create = "`waybill workflow apply` of a workflow that names the agent, or `waybill topics create --agent " + agent + "`"
		}
		err = fmt.Errorf("topic %s: %w; create it with %s", topic, ErrNoTopic, create)
	}
	if err != nil {
		return "", err
	}
	listed, err := a.adm.ListTopics(ctx, topic)
	return topicID(listed[topic].ID), err
}

func (s *Session) options() []kgo.Opt {
	opts := append(produceOptions(),
		kgo.WithHooks(s.tail.attach(s.cfg.Config)),
		kgo.ConsumerGroup(s.cfg.Group),
		kgo.ConsumeTopics(s.cfg.Topic),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(s.cfg.SessionTimeout),
		kgo.HeartbeatInterval(heartbeatInterval(s.cfg.SessionTimeout)),
		// Nobody works within a rebalance here but for a commit (see onRevoked), so a
		// group waits for a member no longer than for one that is silent. The client
		// also gives up an answer to its join that doesn't come only after this and
		// ten seconds more: with its own minute a group stood still for 70 s.
		kgo.RebalanceTimeout(s.cfg.SessionTimeout),
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// A marker takes an offset. It is passed, or what is committed would never be the
		// end of the log, and a group with nothing to do would seem to lag.
		kgo.KeepControlRecords(),
		// With the client's five seconds a resumed session sat still for four.
		kgo.FetchMaxWait(s.cfg.FetchMaxWait),
		// A group without a commit begins with what was asked before the first
		// of its agents started.
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

// Poll waits for the next requests and returns them, at most MaxPollRecords, those
// left out that an earlier owner finished; none after PollWait, whatever the brokers do: a Poll
// that takes much longer hangs. An error is final: close the session
// and open another; what may pass is told to the Listener instead.
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
		s.tail.observe(s.cfg.Config, fetches)
		if records := s.registerRecords(fetches.Records()); len(records) > 0 {
			s.missing = missingTopic{}
			return records, nil
		}
		if !time.Now().Before(until) {
			return nil, nil
		}
		if gone {
			select {
			case <-time.After(topicMissingRetryInterval):
			case <-ctx.Done():
			}
		}
	}
}

// faults sorts the errors of a poll. What may pass is told to the Listener; the first that won't
// is returned. gone: the topic isn't there, perhaps for now.
func (s *Session) classifyErrors(fetches kgo.Fetches) (gone bool, fatal error) {
	fetches.EachError(func(topic string, p int32, err error) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return // the end of the caller's patience, which Poll sees
		}
		err = fmt.Errorf("poll %s/%d as %s: %w", topic, p, s.cfg.Group, err)
		switch {
		case isTopicMissing(err): // of each partition, again and again: told once
			if !gone && s.missing.reportDue(time.Now()) {
				s.report(fmt.Errorf("%w; if the topic was deleted, create it with `waybill topics create`: the new one is read then", err))
			}
			gone = true
		default:
			final := s.fatalError(err, time.Now())
			if final == nil {
				s.report(markFinal(err))
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

// recreated is an error if the topic is another one by now, which another session reads.
func (s *Session) checkRecreated() error {
	ctx, cancel := context.WithTimeout(s.life, boundsTimeout)
	defer cancel()
	listed, err := kadm.NewClient(s.cl).ListTopics(ctx, s.cfg.Topic)
	d := listed[s.cfg.Topic]
	if is := topicID(d.ID); err == nil && d.Err == nil && is != "" && is != s.topicID {
		return &RecreatedError{s.cfg.Topic, s.topicID, is}
	}
	return nil // it isn't there, or nobody says: asked again with the next poll
}

// poll waits for the next requests, but not longer than until, nor than it is time to ask again for what can't be
// read.
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
	found := takeUnreadable(fetches)
	for _, x := range found {
		s.report(fmt.Errorf("%s/%d is paused: its broker doesn't have what was written: %w", x.at.topic, x.at.partition, x.err))
	}
	if len(found) > 0 || len(s.quarantines) > 0 {
		s.quarantine(found, fetches, time.Now())
	}
	return fetches
}

// quarantine pauses what can't be read, and forgets what could be read again.
func (s *Session) quarantine(found []unreadablePart, fetches kgo.Fetches, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range found {
		s.quarantines.pause(s.gate, x.at, now)
	}
	fetches.EachPartition(func(fp kgo.FetchTopicPartition) {
		if len(fp.Records) > 0 {
			s.quarantines.read(s.gate, topicPartition{fp.Topic, fp.Partition})
		}
	})
}

// final is what an error means to a session: nil, it goes on.
func (s *Session) fatalError(err error, now time.Time) error {
	switch classOf(err) {
	case retried:
		return nil
	case refused:
		if now.Sub(s.refused.observe(now, refusedGap)) <= refusedMax {
			return nil
		}
		return &RefusedError{Err: err, Persistent: true}
	case fenced:
		return s.duplicate(err, now)
	}
	return markFinal(err)
}

// duplicate is the error of a session that another process has put out of the group; nil: it isn't known to be.
func (s *Session) duplicate(err error, now time.Time) error {
	s.mu.Lock()
	if s.fencedSince.IsZero() {
		s.fencedSince = now
	}
	since := s.fencedSince
	s.mu.Unlock()
	if now.Sub(since) <= duplicateAfter(s.cfg.SessionTimeout) {
		return nil
	}
	member, _ := s.cl.GroupMetadata()
	return duplicateOf(s.cl, s.cfg.Group, s.cfg.InstanceID, member, err)
}

// delivered registers records with their trackers, leaving out those of
// partitions that have gone meanwhile, those that are finished, and markers.
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
	return fromKgo(work, make([]events.Record, 0, len(work)))
}

// HeldContext is a context that ends, with the cause ErrPartitionLost, when the
// session no longer has the partition: work on its requests is then another's,
// and is to be abandoned without Done. Of a partition that the session doesn't
// have it has ended already.
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

// Done says that a request is finished: its reply is acknowledged, or its time
// is over. In any order; for a partition that has gone, without effect.
func (s *Session) Done(partition int32, offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owned[partition]; o != nil {
		o.tracker.Done(offset)
	}
}

// CommitSoon asks for a commit of what is finished now, rather than within
// CommitEvery. It returns at once; what is asked for while a commit is under way
// is one more. One that fails is tried again in its time. After Close it does
// nothing.
func (s *Session) CommitSoon() {
	select {
	case s.commitNow <- struct{}{}:
	default:
	}
}

// Pause stops fetching, until Resume: the bound on concurrent work is reached.
// Membership and heartbeats go on; a Poll in progress may still return what was
// fetched before. Both may be called again without effect.
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

// Close commits what is finished, leaves the group (a static member only if
// LeaveOnClose says so) and ends the connections; replies that are still
// waiting fail. Within ctx; the error is that of the last commit or of leaving,
// and the session is closed in any case. A commit that is refused because the
// group has gone on meanwhile is told (Trouble) and no error: another member has
// the requests, and gets them again.
func (s *Session) Close(ctx context.Context) error {
	var err error
	s.closing.Do(func() {
		s.end()
		s.loop.Wait()
		if err = s.commit(ctx, nil); isOldGeneration(err) {
			s.report(err)
			err = nil
		}
		err = errors.Join(err, membership{s.cfg.Group, s.cfg.InstanceID, s.cfg.LeaveOnClose}.leave(ctx, s.cl))
		s.cl.Close()
		s.dropPartitions(nil)
	})
	return err
}

// isOldGeneration reports whether a commit was refused because the group goes on in
// another generation. It refuses all partitions then.
func isOldGeneration(err error) bool {
	return errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.UnknownMemberID)
}

func (s *Session) report(err error) {
	if f := s.cfg.Listener.TransientError; f != nil {
		f(err)
	}
}

func (s *Session) onAssigned(_ context.Context, cl *kgo.Client, added map[string][]int32) {
	if f := s.cfg.Listener.Joined; f != nil {
		f()
	}
	s.mu.Lock()
	s.fencedSince = time.Time{}
	s.mu.Unlock()
	ps := added[s.cfg.Topic]
	if len(ps) == 0 {
		return
	}
	s.tail.forget(ps)
	came := make(map[int32]*ownedPartition, len(ps))
	s.mu.Lock()
	for _, p := range ps {
		o := &ownedPartition{tracker: &Tracker{low: -1, read: -1}, offset: -1, mayHaveStartedBelow: math.MaxInt64}
		o.ctx, o.lose = context.WithCancelCause(context.Background())
		s.owned[p], came[p] = o, o
	}
	s.mu.Unlock()
	go s.learnEnds(cl, came) // until it is known, the partitions have gone, or Close
	if f := s.cfg.Listener.Assigned; f != nil {
		f(ps)
	}
}

// onOffsetsFetched runs after onAssigned and before the first fetch.
func (s *Session) onOffsetsFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				s.restoreTracker(p.Partition, p.ErrorCode, p.Offset, p.Metadata)
			}
		}
	}
	for _, t := range resp.Topics { // versions before 8 know one group
		for _, p := range t.Partitions {
			s.restoreTracker(p.Partition, p.ErrorCode, p.Offset, p.Metadata)
		}
	}
	return nil
}

func (s *Session) restoreTracker(partition int32, code int16, offset int64, metadata *string) {
	if code != 0 || offset < 0 {
		return // an error is the client's to try again; without a commit there is nothing to know
	}
	text := ""
	if metadata != nil {
		text = *metadata
	}
	if id := topicIn(text); id != "" && s.topicID != "" && id != s.topicID {
		s.report(fmt.Errorf("partition %d of %s: the group's offset %d is of the topic before, with the id %s, and isn't used: the topic is read from its start", partition, s.cfg.Topic, offset, id))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fromOldTopic[partition] = true
		return
	}
	tracker, err := NewTracker(offset, text)
	if err != nil {
		s.report(fmt.Errorf("partition %d of %s: finished requests may be done again: %w", partition, s.cfg.Topic, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owned[partition]; o != nil {
		o.tracker, o.offset, o.metadata = tracker, offset, text
	}
}

// adjustOffsets runs after onOffsetsFetched: what was committed to another topic isn't used.
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

// onRevoked runs before another member may have the partitions, so that what
// is finished can still be told to it.
func (s *Session) onRevoked(ctx context.Context, _ *kgo.Client, gone map[string][]int32) {
	ps := gone[s.cfg.Topic]
	if len(ps) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(sessionCommitTimeout, s.cfg.SessionTimeout/sessionCommitShare))
	defer cancel()
	if err := s.commit(ctx, ps); err != nil {
		s.report(err)
	}
	s.dropPartitions(ps)
}

// onLost runs when they are another's already: nothing can be committed.
func (s *Session) onLost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	if ps := gone[s.cfg.Topic]; len(ps) > 0 {
		s.dropPartitions(ps)
	}
}

// lose drops partitions, all of them for nil.
func (s *Session) dropPartitions(ps []int32) {
	s.mu.Lock()
	if ps == nil {
		for p := range s.owned {
			ps = append(ps, p)
		}
	}
	for _, p := range ps {
		if o := s.owned[p]; o != nil {
			o.lose(ErrPartitionLost)
			delete(s.owned, p)
		}
	}
	s.mu.Unlock()
	if f := s.cfg.Listener.Lost; f != nil && len(ps) > 0 {
		f(ps)
	}
}
