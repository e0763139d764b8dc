package onkafka

import (
	"context"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
)

// answersReopenDelay is the wait before the answers are followed again after an error.
const answersReopenDelay = time.Second

// controlAnswers follows the answers of schedulers to controls, and passes each to the requests that wait for
// it.
type controlAnswers struct {
	n    *instance.Instance
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	waiting map[string][]chan *events.Answer // by request id and task
}

// start follows the topic from its current end.
func (a *controlAnswers) start(ctx context.Context) error {
	tail, err := a.open(ctx)
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(context.Background())
	a.stop, a.done = stop, make(chan struct{})
	go a.run(life, tail)
	return nil
}

func (a *controlAnswers) open(ctx context.Context) (*kafka.Tail, error) {
	topic := a.n.Kafka.Namespace.Answers()
	ends, err := a.n.Admin.KnownEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	for p := range a.n.Partitions {
		if _, known := ends[p]; !known {
			ends[p] = kafka.TailEnd // a partition without a leader gets no records meanwhile
		}
	}
	return kafka.OpenTail(a.n.Kafka, topic, ends)
}

// run reads answers until life ends. After an error it reopens the topic at its end: a request that missed its
// answer is sent again with the same request id.
func (a *controlAnswers) run(life context.Context, tail *kafka.Tail) {
	defer close(a.done)
	for {
		var err error
		for err == nil && tail != nil {
			var rs []events.Record
			if rs, err = tail.Poll(life); err == nil {
				a.deliver(rs)
			}
		}
		if tail != nil {
			tail.Close()
		}
		if life.Err() != nil {
			return
		}
		a.n.Logger().Warn("following the answers of schedulers failed; trying again", "error", err)
		select {
		case <-time.After(answersReopenDelay):
		case <-life.Done():
			return
		}
		if tail, err = a.open(life); err != nil {
			tail = nil
		}
	}
}

func (a *controlAnswers) deliver(rs []events.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range rs {
		answer, err := events.DecodeAnswer(&rs[i])
		if err != nil {
			continue // not an answer
		}
		key := answerKey(answer.Control, answer.Task)
		for _, to := range a.waiting[key] {
			to <- answer // never blocks: the channel's buffer holds one answer
		}
		delete(a.waiting, key)
	}
}

func answerKey(request, task string) string { return request + "\x00" + task }

// await returns a channel that receives the answer to a control. The caller calls stop when it no longer waits.
func (a *controlAnswers) await(x *events.Control) (answer <-chan *events.Answer, stop func()) {
	key, to := answerKey(x.RequestID, x.Task), make(chan *events.Answer, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[key] = append(a.waiting[key], to)
	return to, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		left := a.waiting[key][:0]
		for _, other := range a.waiting[key] {
			if other != to {
				left = append(left, other)
			}
		}
		if a.waiting[key] = left; len(left) == 0 {
			delete(a.waiting, key)
		}
	}
}

func (a *controlAnswers) close() {
	a.stop()
	<-a.done
}
