package batchrun

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// answers receives the answers of schedulers, and hands each to the command that waits for it.
type answers struct {
	mu      sync.Mutex
	waiting map[string]chan *events.Answer // by request id
}

// expect returns a channel that receives the answer to a command. forget ends the wait.
func (a *answers) expect(x *events.Control) (answer <-chan *events.Answer, forget func()) {
	c := make(chan *events.Answer, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[x.RequestID] = c
	return c, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.waiting[x.RequestID] == c {
			delete(a.waiting, x.RequestID)
		}
	}
}

func (a *answers) deliver(rs []events.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range rs {
		answer, err := events.DecodeAnswer(&rs[i])
		if err != nil {
			continue
		}
		if c := a.waiting[answer.Control]; c != nil {
			delete(a.waiting, answer.Control)
			c <- answer // it has room for one
		}
	}
}

// openAnswers begins to read the answers that are written from now on.
func (s *Service) openAnswers(ctx context.Context) (*logreader.Tail, error) {
	topic := s.cfg.Kafka.Namespace.Answers()
	partitions, exists, err := s.cfg.Admin.TopicPartitions(ctx, topic)
	if err == nil && !exists {
		err = fmt.Errorf("the topic %s doesn't exist; run `waybill topics create`", topic)
	}
	if err != nil {
		return nil, err
	}
	from, err := s.cfg.Admin.KnownEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	for p := range partitions {
		if _, known := from[p]; !known {
			from[p] = logreader.TailEnd // it has no leader
		}
	}
	return logreader.OpenTail(s.cfg.Kafka, topic, from)
}

// command sends a command and waits for its answer; nil: there was none, and why.
func (s *Service) command(ctx context.Context, a *answers, x *events.Control) (answer *events.Answer, why string) {
	within, cancel := context.WithTimeout(ctx, s.cfg.AnswerTimeout)
	defer cancel()
	answered, forget := a.expect(x)
	defer forget()
	if _, err := s.cfg.Producer.SendOne(within, x.Record(s.cfg.Kafka.Namespace, s.cfg.Source)); err != nil {
		return nil, err.Error()
	}
	select {
	case answer = <-answered:
		return answer, ""
	case <-within.Done():
		return nil, fmt.Sprintf("no scheduler answered within %s", s.cfg.AnswerTimeout.Round(time.Millisecond))
	}
}
