package agentsession

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// noPartition is the partition of the queue of replies whose partition isn't known.
const noPartition = -1

// replyQueue has the replies to one partition, which have one flight at a time. A flight must share no batch with another, so
// a reply's partition is chosen before it is handed to the client. That takes the number of partitions, which the client
// tells with each reply (see partitioner). Until it is known, the replies that have no partition have one queue. While
// that has a flight, no other queue of the topic has one.
type replyQueue struct {
	waiting []*reply
	flight  *flight // nil: none is in progress
}

// replyTopic is a topic that replies were sent to.
type replyTopic struct {
	partitions int32 // 0: unknown
	flights    int   // in progress
	// recreated: the client knows the id of the deleted topic. No flight starts; after the last one the client forgets
	// the topic.
	recreated bool
}

// partitioner is kafka.PartitionByKeyOrExplicit, and learns the number of partitions of each topic.
func (q *replies) partitioner() kgo.Partitioner {
	base := kafka.PartitionByKeyOrExplicit()
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		of := base.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			q.mu.Lock()
			q.topic(topic).partitions = int32(n)
			q.mu.Unlock()
			return of.Partition(r, n)
		}
	})
}

// topic returns the state of a topic. q.mu is held.
func (q *replies) topic(name string) *replyTopic {
	t := q.topics[name]
	if t == nil {
		t = &replyTopic{}
		q.topics[name] = t
	}
	return t
}

// enqueue chooses a reply's partition, if that is possible, and appends it to its queue. q.mu is held.
func (q *replies) enqueue(p *reply) {
	r := &p.record
	if n := q.topic(r.Topic).partitions; r.Partition < 0 && n > 0 {
		r.Partition = events.Partition(r.Key, n)
	}
	to := kafka.TopicPartition{Topic: r.Topic, Partition: max(r.Partition, noPartition)}
	l := q.queues[to]
	if l == nil {
		l = &replyQueue{}
		q.queues[to] = l
	}
	l.waiting = append(l.waiting, p)
}

// round is a set of flights that began together. The client sends them in few requests, and replies that come meanwhile
// share the next ones. A request for each reply would cost several times as much.
type round struct {
	left  int // flights in progress
	timer *time.Timer
}

// roundMax bounds a round: after that time, its flights in progress delay no other partition.
const roundMax = 50 * time.Millisecond

// startFlights starts a round with a flight of each queue that may have one, unless a round is in progress.
func (q *replies) startFlights() {
	q.mu.Lock()
	if q.round != nil {
		q.mu.Unlock()
		return
	}
	var flights []*flight
	for to, l := range q.queues {
		if len(l.waiting) == 0 || !q.mayStartFlight(to, l) {
			continue
		}
		if boarded := q.removeWaiting(l); len(boarded) > 0 {
			l.flight = newFlight(q, to, boarded)
			q.topics[to.Topic].flights++
			flights = append(flights, l.flight)
		}
	}
	if len(flights) > 0 {
		r := &round{left: len(flights)}
		for _, f := range flights {
			f.round = r
		}
		r.timer = time.AfterFunc(roundMax, func() { q.endRound(r) })
		q.round = r
	}
	q.mu.Unlock()
	for _, f := range flights {
		f.produce()
	}
}

// endRound ends a round although flights of it are in progress.
func (q *replies) endRound(r *round) {
	q.mu.Lock()
	if q.round == r {
		q.round = nil
	}
	q.mu.Unlock()
	q.startFlights()
}

// countLanded counts a flight of a round that has ended. q.mu is held.
func (q *replies) countLanded(r *round) {
	if r.left--; r.left == 0 {
		r.timer.Stop()
		if q.round == r {
			q.round = nil
		}
	}
}

// mayStartFlight reports whether a queue may have another flight. q.mu is held.
func (q *replies) mayStartFlight(to kafka.TopicPartition, l *replyQueue) bool {
	t := q.topics[to.Topic]
	if l.flight != nil || t.recreated {
		return false
	}
	if to.Partition == noPartition {
		return t.flights == 0
	}
	unknown := q.queues[kafka.TopicPartition{Topic: to.Topic, Partition: noPartition}]
	return unknown == nil || unknown.flight == nil
}

// endFlight queues the replies with time left before all others of the queue, and starts the next round if it was the last one.
// The client forgets a recreated topic here, when no record of it is in flight.
func (q *replies) endFlight(f *flight) {
	q.mu.Lock()
	l, t := q.queues[f.to], q.topics[f.to.Topic]
	l.flight = nil
	t.flights--
	q.countLanded(f.round)
	if f.landed != nil {
		close(f.landed)
	}
	if len(f.resend) > 0 {
		for _, p := range f.resend {
			p.reset(f.to.Partition)
		}
		l.waiting = append(f.resend, l.waiting...)
	}
	if f.recreated {
		t.recreated = true
	}
	forget := t.recreated && t.flights == 0
	unknown := q.queues[kafka.TopicPartition{Topic: f.to.Topic, Partition: noPartition}]
	all := forget || unknown != nil && (unknown == l || len(unknown.waiting) > 0)
	q.mu.Unlock()
	if forget {
		q.cl.PurgeTopicsFromProducing(f.to.Topic)
		q.mu.Lock()
		t.recreated, t.partitions = false, 0
		q.mu.Unlock()
	}
	if all {
		q.redistribute(f.to.Topic)
	}
	q.startFlights()
}

// reset prepares a record that the client failed, which has set some of its fields, for another flight.
func (p *reply) reset(partition int32) {
	r := &p.record
	*r = kgo.Record{Topic: r.Topic, Partition: partition, Key: r.Key, Value: r.Value, Headers: r.Headers}
}

// redistribute queues all waiting replies of a topic again, whose number of partitions has become known or unknown.
func (q *replies) redistribute(topic string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []*reply
	for to, l := range q.queues {
		if to.Topic == topic {
			all = append(all, l.waiting...)
			l.waiting = nil
		}
	}
	for _, p := range all {
		p.reset(p.partition)
		q.enqueue(p)
	}
}
