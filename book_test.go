package waybill

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
)

const testSpace = events.Namespace("t.")

// book is a log in memory.
type book struct {
	mu    sync.Mutex
	parts map[string][][]events.Record // topic, partition
	// fault, if set, is asked before each answer, for "ends" or "read".
	fault func(what string) error
	// answered, if set, is called after each answer about ends.
	answered   func()
	leaderless map[int32]bool // partitions of which no end is known
	asked      int            // for ends
	reads      []string       // "<topic>/<partition> from <offset>"
	quick      bool           // reading takes no time
	// taken, if set, is what schedulers have consumed of the orders; else that is all.
	taken map[int32]int64
}

func newBook(partitions int) *book {
	b := &book{parts: map[string][][]events.Record{}}
	for _, topic := range []string{testSpace.Events(), testSpace.Deadletters()} {
		b.parts[topic] = make([][]events.Record, partitions)
	}
	return b
}

func (b *book) ends(_ context.Context, topic string) (map[int32]int64, error) {
	b.mu.Lock()
	if b.answered != nil {
		defer b.answered()
	}
	defer b.mu.Unlock()
	b.asked++
	if b.fault != nil {
		if err := b.fault("ends"); err != nil {
			return nil, err
		}
	}
	ends := map[int32]int64{}
	for p, rs := range b.parts[topic] {
		if b.leaderless[int32(p)] {
			continue
		}
		ends[int32(p)] = 0
		if n := len(rs); n > 0 {
			ends[int32(p)] = rs[n-1].Offset + 2 // a marker follows
		}
	}
	return ends, nil
}

func (b *book) read(ctx context.Context, topic string, p int32, least int64, since time.Time, fn func([]events.Record) error) (int64, error) {
	b.mu.Lock()
	rs, next := b.parts[topic][p], int64(0)
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
		if !b.quick {
			time.Sleep(time.Millisecond) // others come in between
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

func (b *book) consumed(context.Context) (map[int32]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != nil {
		if err := b.fault("consumed"); err != nil {
			return nil, err
		}
	}
	if b.taken != nil {
		return maps.Clone(b.taken), nil
	}
	all := map[int32]int64{}
	for p := range b.parts[testSpace.Events()] {
		all[int32(p)] = math.MaxInt64
	}
	return all, nil
}

func (b *book) append(topic string, p int32, r events.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.Topic, r.Partition = topic, p
	if n := len(b.parts[topic][p]); n > 0 {
		r.Offset = b.parts[topic][p][n-1].Offset + 2 // each in a transaction
	}
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	b.parts[topic][p] = append(b.parts[topic][p], r)
}

// writer writes the history of a task.
type writer struct {
	book *book
	id   string
	p    int32
	seq  uint64
	prev string
	skew time.Duration // of the broker's clock
}

func (b *book) task(id string) *writer {
	return &writer{book: b, id: id, p: events.Partition([]byte(id), int32(len(b.parts[testSpace.Events()])))}
}

func (w *writer) write(facts ...events.Fact) *writer {
	for _, f := range facts {
		w.seq++
		e := &events.Event{Task: w.id, Seq: w.seq, At: time.Now(), Epoch: 1, Prev: w.prev, Fact: f}
		value := e.Value()
		w.prev = events.Hash(f.Type(), value)
		r := e.Record(testSpace, string(testSpace)+"scheduler/s1/0", w.p, value)
		r.Time = time.Now().Add(w.skew)
		w.book.append(testSpace.Events(), w.p, r)
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
