package logclient

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
)

const testNamespace = events.Namespace("t.")

// fakeLog is an Log in memory.
type fakeLog struct {
	mu         sync.Mutex
	partitions map[string][][]events.Record // topic, partition
	// fault, if set, returns the error of each call: of "ends", "read" or "consumed".
	fault func(what string) error
	// afterEnds, if set, is called after each EndOffsets.
	afterEnds  func()
	lookup     Lookup         // of the Waiter; nil: none
	leaderless map[int32]bool // partitions whose end is unknown
	lookups    int            // calls of lookUp
	endsCalls  int            // calls of EndOffsets
	reads      []string       // "<topic>/<partition> from <offset>"
	noDelay    bool           // read doesn't sleep
	// consumedByScheduler, if set, has the consumed offsets; otherwise all orders count as consumed.
	consumedByScheduler map[int32]int64
}

func newFakeLog(partitions int) *fakeLog {
	b := &fakeLog{partitions: map[string][][]events.Record{}}
	for _, topic := range []string{testNamespace.Events(), testNamespace.Deadletters()} {
		b.partitions[topic] = make([][]events.Record, partitions)
	}
	return b
}

func (b *fakeLog) EndOffsets(_ context.Context, topic string) (map[int32]int64, error) {
	b.mu.Lock()
	if b.afterEnds != nil {
		defer b.afterEnds()
	}
	defer b.mu.Unlock()
	b.endsCalls++
	if b.fault != nil {
		if err := b.fault("ends"); err != nil {
			return nil, err
		}
	}
	ends := map[int32]int64{}
	for p, rs := range b.partitions[topic] {
		if b.leaderless[int32(p)] {
			continue
		}
		ends[int32(p)] = 0
		if n := len(rs); n > 0 {
			ends[int32(p)] = rs[n-1].Offset + 2 // a transaction marker follows
		}
	}
	return ends, nil
}

func (b *fakeLog) Read(ctx context.Context, topic string, p int32, least int64, since time.Time, fn func([]events.Record) error) (int64, error) {
	b.mu.Lock()
	rs, next := b.partitions[topic][p], int64(0)
	if n := len(rs); n > 0 {
		next = rs[n-1].Offset + 2
	}
	for len(rs) > 0 && (rs[0].Time.Before(since) || rs[0].Offset < least) {
		rs = rs[1:]
	}
	from := next
	if len(rs) > 0 {
		from = rs[0].Offset
	}
	next = max(next, least)
	b.reads = append(b.reads, fmt.Sprintf("%s/%d from %d", topic, p, from))
	fault := b.fault
	b.mu.Unlock()
	for len(rs) > 0 {
		if !b.noDelay {
			time.Sleep(time.Millisecond) // lets other goroutines run in between
		}
		if fault != nil {
			if err := fault("read"); err != nil {
				return rs[0].Offset, err
			}
		}
		n := min(3, len(rs))
		if err := fn(rs[:n:n]); err != nil {
			return rs[0].Offset, err
		}
		rs = rs[n:]
	}
	return next, ctx.Err()
}

func (b *fakeLog) ConsumedOffsets(context.Context) (map[int32]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != nil {
		if err := b.fault("consumed"); err != nil {
			return nil, err
		}
	}
	if b.consumedByScheduler != nil {
		return maps.Clone(b.consumedByScheduler), nil
	}
	all := map[int32]int64{}
	for p := range b.partitions[testNamespace.Events()] {
		all[int32(p)] = math.MaxInt64
	}
	return all, nil
}

func (b *fakeLog) append(topic string, p int32, r events.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.Topic, r.Partition = topic, p
	if n := len(b.partitions[topic][p]); n > 0 {
		r.Offset = b.partitions[topic][p][n-1].Offset + 2 // each in a separate transaction
	}
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	b.partitions[topic][p] = append(b.partitions[topic][p], r)
}

// lookUp is a Lookup that takes some time.
func (b *fakeLog) lookUp(ctx context.Context, id string, withDigest bool) (*events.TaskView, string, error) {
	b.mu.Lock()
	fault := b.fault
	b.lookups++
	b.mu.Unlock()
	if fault != nil {
		if err := fault("lookup"); err != nil {
			return nil, "", err
		}
	}
	p := events.Partition([]byte(id), int32(len(b.partitions[testNamespace.Events()])))
	b.mu.Lock()
	s := taskFold{}
	for _, r := range b.partitions[testNamespace.Events()][p] {
		if string(r.Key) == id {
			s.apply(&r)
		}
	}
	b.mu.Unlock()
	time.Sleep(time.Duration(len(id)) * time.Millisecond) // the answer is on its way
	if s.task == nil || s.err != nil {
		return nil, "", s.err
	}
	v, digest := s.task.View("s1/0", p, 0), ""
	if withDigest {
		digest = s.task.Digest
	}
	return &v, digest, ctx.Err()
}

// historyWriter appends the events of a task.
type historyWriter struct {
	log  *fakeLog
	id   string
	p    int32
	seq  uint64
	prev string
	skew time.Duration // of the broker's clock
}

func (b *fakeLog) task(id string) *historyWriter {
	return &historyWriter{log: b, id: id, p: events.Partition([]byte(id), int32(len(b.partitions[testNamespace.Events()])))}
}

func (w *historyWriter) write(facts ...events.Fact) *historyWriter {
	for _, f := range facts {
		w.seq++
		e := &events.Event{Task: w.id, Seq: w.seq, At: time.Now(), Epoch: 1, Prev: w.prev, Fact: f}
		value := e.Value()
		w.prev = events.Hash(f.Type(), value)
		r := e.Record(testNamespace, string(testNamespace)+"scheduler/s1/0", w.p, value)
		r.Time = time.Now().Add(w.skew)
		w.log.append(testNamespace.Events(), w.p, r)
	}
	return w
}

func received(digest string) events.Fact {
	return &events.TaskReceived{Workflow: "w", Version: 1, Digest: digest, Plan: events.NewPlan(events.OnErrorUndo, time.Hour, nil)}
}

var (
	started  = &events.TaskStarted{}
	finished = &events.TaskProcessed{Output: []byte(`1`)}
	resumed  = &events.TaskResumed{}
)

func held() events.Fact    { return &events.TaskHeld{Error: &events.Error{Code: "c"}} }
func undoing() events.Fact { return &events.TaskUndoing{Ending: events.StateUndone} }
func undone() events.Fact  { return &events.TaskUndone{} }
