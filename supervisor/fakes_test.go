package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/supervisor"
)

const testNamespace = events.Namespace(events.DefaultNamespace)

// brokerLog is an in-memory events topic with one member of its group.
type brokerLog struct {
	mu         sync.Mutex
	parts      map[int32]*brokerPartition
	assigned   map[int32]uint64
	generation uint64
	wake       chan struct{}
	broken     error
	commits    []map[int32]int64
	commitErr  error
	pollLimit  int
}

type brokerPartition struct {
	entries  []*events.Record // by offset; nil: an end marker of a transaction
	stable   int              // last stable offset; negative: the end of the log
	position int
	high     int
	known    bool // position and high belong to this assignment
}

const brokerWait = 250 * time.Millisecond // longest wait of a poll

func newBrokerLog(partitions int32) *brokerLog {
	l := &brokerLog{parts: map[int32]*brokerPartition{}, assigned: map[int32]uint64{}, wake: make(chan struct{}, 1), pollLimit: 1000}
	for p := range partitions {
		l.parts[p] = &brokerPartition{stable: -1}
	}
	return l
}

// append adds records with the broker's current time.
func (l *brokerLog) append(p int32, evs ...*events.Event) {
	l.appendAt(time.Now(), p, evs...)
}

func (l *brokerLog) appendAt(at time.Time, p int32, evs ...*events.Event) {
	for _, e := range evs {
		e.At = events.Millis(at)
		r := e.Record(testNamespace, "test", p, e.Value())
		r.Time = at
		l.appendRecord(p, &r)
	}
}

func (l *brokerLog) appendRecord(p int32, r *events.Record) {
	l.mu.Lock()
	part := l.parts[p]
	if r != nil {
		r.Offset = int64(len(part.entries))
	}
	part.entries = append(part.entries, r)
	l.mu.Unlock()
	l.Wake()
}

func (l *brokerLog) setStable(p int32, offset int) {
	l.mu.Lock()
	l.parts[p].stable = offset
	l.mu.Unlock()
	l.Wake()
}

func (l *brokerLog) fail(err error) {
	l.mu.Lock()
	l.broken = err
	l.mu.Unlock()
	l.Wake()
}

// assign sets the member's partitions and calls start for new ones, as the follower does. The partitions in again were
// revoked in between.
func (l *brokerLog) assign(t testing.TB, start func(context.Context, string, int32) (int64, bool, error), ps []int32, again ...int32) {
	t.Helper()
	l.mu.Lock()
	before := l.assigned
	l.assigned = map[int32]uint64{}
	var added []int32
	for _, p := range ps {
		generation, had := before[p]
		for _, a := range again {
			had = had && a != p
		}
		if !had {
			l.generation++
			generation = l.generation
			added = append(added, p)
			l.parts[p].known = false
		}
		l.assigned[p] = generation
	}
	l.mu.Unlock()
	for _, p := range added {
		offset, ok, err := start(t.Context(), testNamespace.Events(), p)
		if err != nil || !ok {
			t.Fatalf("start of partition %d: %v, %v", p, ok, err)
		}
		l.mu.Lock()
		// The record before the offset is read again.
		l.parts[p].position, l.parts[p].high, l.parts[p].known = max(0, int(offset)-1), len(l.parts[p].entries), true
		l.mu.Unlock()
	}
	l.Wake()
}

func (l *brokerLog) Assigned() map[int32]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.assigned)
}

func (l *brokerLog) Poll(ctx context.Context) ([]events.Record, error) {
	timeout := time.NewTimer(brokerWait)
	defer timeout.Stop()
	for waited := false; ; waited = true {
		rs, err := l.ready()
		if len(rs) > 0 || err != nil || waited {
			return rs, err
		}
		select {
		case <-l.wake:
		case <-timeout.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *brokerLog) ready() ([]events.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rs []events.Record
	for p := range l.assigned {
		part := l.parts[p]
		if !part.known { // start hasn't returned yet
			continue
		}
		end := len(part.entries)
		if part.stable >= 0 {
			end = min(end, part.stable)
		}
		for part.position < end && len(rs) < l.pollLimit {
			if r := part.entries[part.position]; r != nil {
				rs = append(rs, *r)
			}
			part.position++
		}
	}
	return rs, l.broken
}

func (l *brokerLog) HighWatermark(_ string, p int32) (int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.parts[p].high), l.parts[p].known
}

func (l *brokerLog) Position(_ string, p int32) (int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.parts[p].position), true
}

func (l *brokerLog) Tail(_ string, p int32) (int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	part := l.parts[p]
	if part.stable >= 0 {
		return int64(min(part.stable, len(part.entries))), true
	}
	return int64(len(part.entries)), true
}

func (l *brokerLog) Commit(_ context.Context, positions map[int32]int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commits = append(l.commits, positions)
	return l.commitErr
}

func (l *brokerLog) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// outbox records the sent records and the times of their acknowledgements.
type outbox struct {
	mu   sync.Mutex
	sent []delivery
	// deliver may delay or fail a batch; may be nil.
	deliver func(ctx context.Context, p int32, n int) error
}

type delivery struct {
	at       time.Time
	p        int32
	recovery *events.Recovery
}

func (o *outbox) Send(ctx context.Context, rs ...events.Record) error {
	if o.deliver != nil {
		if err := o.deliver(ctx, rs[0].Partition, len(rs)); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range rs {
		task, in, err := events.DecodeInput(events.Recoveries, &rs[i])
		if err != nil {
			return err
		}
		if task != string(rs[i].Key) || rs[i].Topic != testNamespace.Inbox(events.Recoveries) {
			return fmt.Errorf("recovery of %q went to %s under key %q", task, rs[i].Topic, rs[i].Key)
		}
		o.sent = append(o.sent, delivery{time.Now(), rs[i].Partition, in.(*events.Recovery)})
	}
	return nil
}

// since returns the times of sends after start, by task (empty: all tasks).
func (o *outbox) since(start time.Time, task string) []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ds []time.Duration
	for _, d := range o.sent {
		if task == "" || d.recovery.Task == task {
			ds = append(ds, d.at.Sub(start))
		}
	}
	return ds
}

// brokerClock is the broker's time: the local time plus an offset.
type brokerClock struct{ offset atomic.Int64 }

func (c *brokerClock) Now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// disk is an in-memory store of projections with faults.
type disk struct {
	store *projections.Store

	mu       sync.Mutex
	open     map[int32]int   // number of open projections, by partition
	saved    map[int32]int64 // Next of the last save
	saves    int
	applied  int
	applyErr error
	openErr  error
	hangs    chan struct{} // if it is set, saves block until it is closed
}

func newDisk(t *testing.T, partitions int32) *disk {
	t.Helper()
	d := &disk{open: map[int32]int{}, saved: map[int32]int64{}}
	store, err := projections.Open("deadlines", projections.Identity{
		ClusterID: "test", Namespace: testNamespace, Partitions: partitions, View: projections.ViewDeadlines,
	}, projections.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, MemtableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d.store = store
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return d
}

func (d *disk) Deadlines(p int32) (supervisor.Deadlines, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.openErr != nil {
		return nil, d.openErr
	}
	v, err := d.store.Deadlines(p)
	if err != nil {
		return nil, err
	}
	d.open[p]++
	return &deadlines{Deadlines: v, disk: d, p: p}, nil
}

// deadlines is a real projection with the disk's faults.
type deadlines struct {
	*projections.Deadlines
	disk *disk
	p    int32
	gone bool // discarded
}

func (v *deadlines) Apply(r *events.Record) error {
	v.disk.mu.Lock()
	v.disk.applied++
	err := v.disk.applyErr
	v.disk.mu.Unlock()
	if err != nil {
		return err
	}
	return v.Deadlines.Apply(r)
}

func (v *deadlines) Save() {
	if v.disk.hangs != nil {
		<-v.disk.hangs
	}
	v.disk.mu.Lock()
	defer v.disk.mu.Unlock()
	v.disk.saves++
	v.disk.saved[v.p] = v.Next()
	v.Deadlines.Save()
}

func (v *deadlines) Snooze(d events.Due, until time.Time) {
	if v.gone {
		panic("snooze in partition " + strconv.Itoa(int(v.p)) + " after it was discarded")
	}
	v.Deadlines.Snooze(d, until)
}

func (v *deadlines) Discard() {
	v.disk.mu.Lock()
	defer v.disk.mu.Unlock()
	v.gone = true
	v.disk.open[v.p]--
	v.Deadlines.Discard()
}

var errDown = errors.New("broker down")
