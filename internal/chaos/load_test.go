package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

const (
	// inFlightMax bounds the tasks that have neither ended nor are held, and those that are not acknowledged.
	inFlightMax = 3000
	// submitAgain is the pause before a failed submission is repeated.
	submitAgain = time.Second
	// deliverWithin is how long a client of the load waits for an acknowledgement.
	deliverWithin = 10 * time.Second
)

// load submits tasks at a rate, through the proxies, and keeps the acknowledged ones. A submission that isn't
// acknowledged is repeated with the same id and body.
type load struct {
	cfg      kafka.Config
	producer *kafka.Producer
	seen     *observer
	rate     int // tasks per second
	most     int // number of tasks; 0: no bound

	mu        sync.Mutex
	rng       *rand.Rand
	acked     map[string]time.Time
	submitted map[string]bool
	recent    []string // ids for the stray writers
	waiting   atomic.Int64
	retried   atomic.Int64
	heldBack  atomic.Int64
}

func openLoad(cfg kafka.Config, seen *observer, seed uint64, rate, most int) (*load, error) {
	producer, err := kafka.OpenProducerWithin(cfg, deliverWithin)
	if err != nil {
		return nil, err
	}
	return &load{cfg: cfg, producer: producer, seen: seen, rate: rate, most: most, rng: rand.New(rand.NewPCG(seed, 1)),
		acked: map[string]time.Time{}, submitted: map[string]bool{}}, nil
}

// run submits until ctx ends or all tasks are submitted. Then it waits until all submitted tasks are acknowledged, at
// most until the parent of ctx ends.
func (l *load) run(ctx context.Context) {
	tick := time.NewTicker(time.Second / time.Duration(l.rate))
	defer tick.Stop()
	for n := 0; l.most == 0 || n < l.most; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if int(l.waiting.Load())+l.open() > inFlightMax {
			l.heldBack.Add(1)
			continue
		}
		l.submit(n)
		n++
	}
}

// open returns how many acknowledged tasks have neither ended nor are held.
func (l *load) open() int {
	l.mu.Lock()
	acked := len(l.acked)
	l.mu.Unlock()
	return acked - l.seen.settled()
}

// submit sends task number n repeatedly, until it is acknowledged.
func (l *load) submit(n int) {
	l.mu.Lock()
	s := l.order(n)
	l.submitted[s.ID] = true
	again := l.rng.IntN(50) == 0
	r := l.alterEncoding(s.Record(l.cfg.Namespace, "chaos"), n)
	l.mu.Unlock()
	l.waiting.Add(1)
	l.send(s.ID, r)
	if again { // as a client does that lost the acknowledgement
		l.producer.SendAsync(context.Background(), r, func(events.Record, error) {})
	}
}

func (l *load) send(id string, r events.Record) {
	l.producer.SendAsync(context.Background(), r, func(_ events.Record, err error) {
		if err == nil {
			l.note(id)
			return
		}
		l.retried.Add(1)
		time.AfterFunc(submitAgain, func() { l.send(id, r) })
	})
}

func (l *load) note(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, twice := l.acked[id]; twice {
		return
	}
	l.acked[id] = time.Now()
	l.waiting.Add(-1)
	if l.recent = append(l.recent, id); len(l.recent) > 500 {
		l.recent = l.recent[250:]
	}
}

// order returns the submission of task number n.
func (l *load) order(n int) events.Submission {
	s := events.Submission{
		ID:       fmt.Sprintf("order/%07d", n),
		Workflow: workflows[l.rng.IntN(len(workflows))],
		Input: fmt.Appendf(nil, `{"card":%q,"total":%.2f,"items":[{"sku":"s-%d"}]}`,
			cards[l.rng.IntN(len(cards))], 1+200*l.rng.Float64(), l.rng.IntN(100)),
		Priority: l.rng.IntN(3),
	}
	switch l.rng.IntN(20) {
	case 0:
		s.CompleteBy = time.Now().Add(-time.Second) // the task ends at once
	case 1:
		s.CompleteBy = time.Now().Add(5 * time.Second)
	case 2, 3, 4:
		s.ReplyTo = repliesTo
	case 5:
		s.Labels = map[string]string{"kind": "labelled"}
	}
	return s
}

// alterEncoding encodes some submissions as other clients do: without a key, in the partition of another hash, or
// without headers.
func (l *load) alterEncoding(r events.Record, n int) events.Record {
	switch l.rng.IntN(25) {
	case 0:
		r.Key, r.Partition = nil, int32(n%events.DefaultPartitions)
	case 1:
		r.Partition = int32(n % events.DefaultPartitions)
	case 2:
		r.Headers = nil
	}
	return r
}

// randomTask returns a recently acknowledged task; empty: none.
func (l *load) randomTask(rng *rand.Rand) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.recent) == 0 {
		return ""
	}
	return l.recent[rng.IntN(len(l.recent))]
}

// acknowledged returns all acknowledged tasks with the times of their acknowledgement.
func (l *load) acknowledged() map[string]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]time.Time, len(l.acked))
	for id, at := range l.acked {
		all[id] = at
	}
	return all
}

// isSubmitted reports whether a task was submitted by the load.
func (l *load) isSubmitted(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.submitted[id]
}
