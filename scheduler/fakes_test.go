package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// ns is the namespace of these tests.
const ns = events.Namespace(events.DefaultNamespace)

// cluster is an in-memory Kafka for workers. It has topics, the positions of one group, and atomic transactions. It
// accepts only what a broker accepts.
type cluster struct {
	mu         sync.Mutex
	partitions int32
	logs       map[string]map[int32][]events.Record
	committed  map[string]map[int32]int64
	recreated  map[string]int              // number of recreations
	missing    map[string]bool             // deleted topics that the metadata still shows
	arrived    chan struct{}               // closed and replaced at each write
	now        func() time.Time            // the timestamp of new records; nil: none
	readRange  func(context.Context) error // called by ReadRange; nil: nothing
}

func newCluster(partitions int32) *cluster {
	return &cluster{partitions: partitions, logs: map[string]map[int32][]events.Record{}, committed: map[string]map[int32]int64{},
		missing: map[string]bool{}, recreated: map[string]int{}, arrived: make(chan struct{})}
}

// write appends records and returns their positions.
func (c *cluster) write(rs ...events.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range rs {
		c.append(&rs[i])
	}
}

// recreate deletes a topic and creates it again. The group's positions in it are deleted, too.
func (c *cluster) recreate(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.logs, topic)
	delete(c.committed, topic)
	c.recreated[topic]++
}

func (c *cluster) append(r *events.Record) {
	if r.Partition < 0 {
		r.Partition = events.Partition(r.Key, c.partitions)
	}
	if c.logs[r.Topic] == nil {
		c.logs[r.Topic] = map[int32][]events.Record{}
	}
	if c.now != nil {
		r.Time = events.Millis(c.now())
	}
	r.Offset = int64(len(c.logs[r.Topic][r.Partition]))
	c.logs[r.Topic][r.Partition] = append(c.logs[r.Topic][r.Partition], written(r))
	close(c.arrived)
	c.arrived = make(chan struct{})
}

// written returns a deep copy of a record, since the writer reuses its memory.
func written(r *events.Record) events.Record {
	w := *r
	w.Key, w.Value, w.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), slices.Clone(r.Headers)
	for i := range w.Headers {
		w.Headers[i].Value = bytes.Clone(w.Headers[i].Value)
	}
	return w
}

// together returns a partition and the added partition that is assigned with it.
func (c *cluster) together(p int32) []int32 { return []int32{p, p + c.partitions} }

// all returns the records of a topic, by partition and offset.
func (c *cluster) all(topic string) []events.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []events.Record
	for _, p := range slices.Sorted(maps.Keys(c.logs[topic])) {
		all = append(all, c.logs[topic][p]...)
	}
	return all
}

// Read implements History.
func (c *cluster) Read(_ context.Context, topic string, p int32, from int64, fn func([]events.Record) error) (int64, error) {
	c.mu.Lock()
	log := c.logs[topic][p]
	c.mu.Unlock()
	if from > int64(len(log)) {
		return 0, &pastEnd{fmt.Sprintf("offset %d of %s/%d is past its end, %d", from, topic, p, len(log))}
	}
	return int64(len(log)), fn(log[from:])
}

// pastEnd is the error of an offset beyond the end of the log.
type pastEnd struct{ what string }

func (e *pastEnd) Error() string { return e.what }
func (*pastEnd) Permanent() bool { return true }
func (*pastEnd) Ahead() bool     { return true }

// ReadLast implements History.
func (c *cluster) ReadLast(ctx context.Context, topic string, p int32, n int64, fn func([]events.Record) error) (bool, error) {
	c.mu.Lock()
	end := int64(len(c.logs[topic][p]))
	c.mu.Unlock()
	_, err := c.Read(ctx, topic, p, max(0, end-n), fn)
	return end <= n, err
}

// pollWait is the longest wait of an empty poll.
const pollWait = 20 * time.Millisecond

// fakeLog is a worker's group membership and producer. Its fault fields are set between iterations, or by its hooks.
type fakeLog struct {
	cluster   *cluster
	max       int // most records of one poll
	atMost    int // by PollAtMost; 0: max
	woken     chan struct{}
	gone      chan struct{}              // closed by Close
	reflected map[int32]map[string]int64 // by partition, as the worker set it

	mu       sync.Mutex
	assigned map[int32]uint64
	restored map[int32]uint64
	gate     *inboxgate.Gate
	position map[string]map[int32]int64
	polled   map[int32]uint64 // partitions of the records that were polled since the last commit or abort
	broken   error
	stalled  time.Duration

	polledSome   func()                                                   // after a poll that found records
	beforeCommit func()                                                   //
	end          func(commit func()) (committed, handled bool, err error) // replaces a commit
	tooLarge     func(r *events.Record) bool                              // reports records that are too large for their topic; nil: none
	refuse       func(r *events.Record) bool                              // reports records that are refused temporarily; nil: none
	commits      int
	aborts       int
	rewinds      int
	cannotRewind error
	pauses       []string // topics, in order; "+" marks those that were resumed
}

func (c *cluster) join(partitions ...int32) *fakeLog {
	l := &fakeLog{cluster: c, max: 100, woken: make(chan struct{}, 1), gone: make(chan struct{}), assigned: map[int32]uint64{}, restored: map[int32]uint64{},
		position: map[string]map[int32]int64{}, polled: map[int32]uint64{}}
	l.gate = inboxgate.New(pauses{l})
	for _, p := range partitions {
		l.assign(p)
	}
	return l
}

// generations gives every assignment another number.
var generations struct {
	sync.Mutex
	last uint64
}

// assign assigns a partition. If it was assigned, it gets a new generation.
func (l *fakeLog) assign(p int32) {
	generations.Lock()
	generations.last++
	n := generations.last
	generations.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.assigned = maps.Clone(l.assigned)
	l.assigned[p] = n
	delete(l.restored, p)
	for _, topic := range ns.InboxTopics() {
		l.gate.PauseOnly(inboxgate.Inbox{Topic: topic, Partition: p}, inboxgate.PausedForRestore)
	}
}

func (l *fakeLog) lose(p int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.assigned = maps.Clone(l.assigned)
	delete(l.assigned, p)
}

func (l *fakeLog) Assigned() map[int32]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.assigned
}

// TopicID returns the number of recreations of the topic as its id.
func (l *fakeLog) TopicID(topic string) string {
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	return fmt.Sprintf("%s#%d", topic, l.cluster.recreated[topic])
}

func (l *fakeLog) Reflected(_ context.Context, p int32, below map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reflected == nil {
		l.reflected = map[int32]map[string]int64{}
	}
	l.reflected[p] = below
}

// Rewind implements Client.
func (l *fakeLog) Rewind(_ context.Context, p int32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cannotRewind != nil {
		return l.cannotRewind
	}
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	for _, topic := range ns.InboxTopics() {
		delete(l.position[topic], p)
		delete(l.cluster.committed[topic], p)
	}
	l.rewinds++
	return nil
}

// pauses is the client of the fake's inbox gate. It records pauses of whole topics.
type pauses struct{ l *fakeLog }

func (p pauses) Pause(in inboxgate.Inbox) {
	if in.Partition == inboxgate.AllPartitions {
		p.l.pauses = append(p.l.pauses, in.Topic)
	}
}

func (p pauses) Resume(in inboxgate.Inbox) {
	if in.Partition == inboxgate.AllPartitions {
		p.l.pauses = append(p.l.pauses, "+"+in.Topic)
	}
}

func (l *fakeLog) Resume(p int32, why inboxgate.Reason, topics ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(topics) == 0 {
		topics = ns.InboxTopics()
	}
	for _, topic := range topics {
		l.gate.Resume(inboxgate.Inbox{Topic: topic, Partition: p}, why)
	}
	if why == inboxgate.PausedForRestore && l.restored[p] != l.assigned[p] {
		l.restored[p] = l.assigned[p]
		l.rewindPartition(p)
	}
}

func (l *fakeLog) Pause(p int32, topic string, why inboxgate.Reason, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate.Pause(inboxgate.Inbox{Topic: topic, Partition: p}, why, until)
}

// rewindPartition sets the read positions of a partition to the group's.
func (l *fakeLog) rewindPartition(p int32) {
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	for _, topic := range ns.InboxTopics() {
		if l.position[topic] == nil {
			l.position[topic] = map[int32]int64{}
		}
		for _, p := range l.cluster.together(p) {
			l.position[topic][p] = l.cluster.committed[topic][p]
		}
	}
}

func (l *fakeLog) Poll(ctx context.Context) ([]events.Record, error) {
	bound := time.NewTimer(pollWait)
	defer bound.Stop()
	for {
		l.cluster.mu.Lock()
		arrived := l.cluster.arrived
		l.cluster.mu.Unlock()
		rs, err := l.take()
		if err != nil || len(rs) > 0 {
			return rs, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.gone:
			return nil, errors.New("the worker is closed")
		case <-l.woken:
			return nil, nil
		case <-bound.C:
			return nil, nil
		case <-arrived:
		}
	}
}

func (l *fakeLog) PollAtMost(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.atMost = n
}

func (l *fakeLog) take() ([]events.Record, error) {
	l.mu.Lock()
	most := l.max
	if l.atMost > 0 {
		most = min(most, l.atMost)
	}
	if l.broken != nil {
		defer l.mu.Unlock()
		return nil, l.broken
	}
	var rs []events.Record
	l.gate.ResumeDue(time.Now())
	l.cluster.mu.Lock()
	for _, topic := range ns.InboxTopics() {
		for p, n := range l.assigned {
			if l.restored[p] != n || !l.gate.Flows(inboxgate.Inbox{Topic: topic, Partition: p}) {
				continue
			}
			for _, q := range l.cluster.together(p) {
				for log, at := l.cluster.logs[topic][q], l.position[topic]; at[q] < int64(len(log)) && len(rs) < most; at[q]++ {
					rs = append(rs, log[at[q]])
					l.polled[p] = n
				}
			}
		}
	}
	l.cluster.mu.Unlock()
	hook := l.polledSome
	l.mu.Unlock()
	if len(rs) > 0 && hook != nil {
		hook()
	}
	return rs, nil
}

// refusal is the error of a record that the cluster refuses.
type refusal struct {
	index     int
	permanent bool
}

func (r *refusal) Error() string    { return fmt.Sprintf("record %d was refused", r.index) }
func (r *refusal) RecordIndex() int { return r.index }
func (r *refusal) Permanent() bool  { return r.permanent }

// tooLargeRefusal is the error of a record that is too large for its topic.
type tooLargeRefusal struct{ refusal }

func (r *tooLargeRefusal) TooLarge() (bytes, most int) { return 120_000, 100_000 }

// clientBytes returns an upper bound of a record's size in a batch of its own, as a client checks it. Each length takes
// at most five bytes.
func clientBytes(r *events.Record) int {
	n := 128 + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += 10 + len(h.Key) + len(h.Value)
	}
	return n
}

func (l *fakeLog) Commit(ctx context.Context, out []events.Record) (bool, error) {
	if l.beforeCommit != nil {
		l.beforeCommit()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.polled) == 0 {
		panic("a transaction that consumed nothing")
	}
	if l.broken != nil {
		return false, l.broken
	}
	if err := ctx.Err(); err != nil {
		l.broken = err
		return false, err
	}
	for p, n := range l.polled {
		if l.assigned[p] != n {
			l.rewind()
			return false, nil
		}
	}
	for i := range out {
		if l.tooLarge != nil && l.tooLarge(&out[i]) {
			l.rewind()
			return false, &tooLargeRefusal{refusal{i, true}}
		}
		refused := l.refuses(&out[i])
		if refused || l.cluster.missing[out[i].Topic] || clientBytes(&out[i]) > maxRecordBytes {
			l.rewind()
			return false, &refusal{i, !refused}
		}
	}
	commit := func() { l.commit(out) }
	if l.end != nil {
		if committed, handled, err := l.end(commit); handled {
			if err != nil {
				l.broken = err
			} else if !committed {
				l.rewind()
			}
			return committed, err
		}
	}
	commit()
	return true, nil
}

// commit writes the output and the positions.
func (l *fakeLog) commit(out []events.Record) {
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	for i := range out {
		l.cluster.append(&out[i])
	}
	for topic, at := range l.position {
		if l.cluster.committed[topic] == nil {
			l.cluster.committed[topic] = map[int32]int64{}
		}
		for p := range l.polled {
			for _, p := range l.cluster.together(p) {
				l.cluster.committed[topic][p] = at[p]
			}
		}
	}
	clear(l.polled)
	l.commits++
}

func (l *fakeLog) Abort(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rewind()
	return l.broken
}

func (l *fakeLog) rewind() {
	for p := range l.assigned {
		l.rewindPartition(p)
	}
	clear(l.polled)
	l.aborts++
}

func (l *fakeLog) Wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

func (l *fakeLog) Stalled(time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stalled
}

func (l *fakeLog) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gone:
	default:
		close(l.gone)
	}
}
