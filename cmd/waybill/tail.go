package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

const (
	// tailEvery is how often a tool asks for news.
	tailEvery = 50 * time.Millisecond
	// clockSpread is by how much the clocks of brokers may differ, generously.
	clockSpread = time.Minute
)

// tail follows partitions of a topic by asking for what is new. It joins no
// consumer group: an operator's command needs no rights on groups, leaves none
// behind, and doesn't wait the three seconds that Kafka gives a new group.
//
// A read begins by time, at the last record that was seen, and what was seen is
// passed over by its offset: so nothing is missed, whatever the clocks say.
type tail struct {
	log    *logbook
	topic  string
	places map[int32]place
	// whole: a partition that no broker leads is waited for, as brokers are that are away. Else it is passed
	// over until one leads it.
	whole bool
}

// tailFrom follows a topic from offsets that were its ends at an instant of
// the broker's clock.
func (l *logbook) tailFrom(topic string, ends map[int32]int64, at time.Time) *tail {
	t := &tail{log: l, topic: topic, places: make(map[int32]place, len(ends))}
	for p, next := range ends {
		t.places[p] = place{next, at.Add(-clockSpread)}
	}
	return t
}

// poll gives fn what is new, and reports whether anything was.
func (t *tail) poll(ctx context.Context, fn func(*events.Record)) (news bool, err error) {
	ends, err := t.log.ends(ctx, t.topic)
	if err != nil {
		return false, err
	}
	for _, p := range slices.Sorted(maps.Keys(t.places)) {
		at := t.places[p]
		if _, led := ends[p]; !led && t.whole {
			return news, &kafka.UnavailableError{Topic: t.topic, Partitions: []int32{p}, Err: kafka.ErrNoLeader}
		}
		if ends[p] <= at.next {
			continue
		}
		places, err := t.log.read(ctx, t.topic, kafka.Range{Partitions: []int32{p}, Since: at.time, Blocked: soon}, func(r *events.Record) error {
			if r.Offset >= at.next {
				news = true
				fn(r)
				// At once: a read that fails on the way is tried again from here.
				at = place{r.Offset + 1, later(r.Time, at.time)}
				t.places[p] = at
			}
			return nil
		})
		if err != nil {
			return news, err
		}
		if places[p].next > at.next {
			t.places[p] = places[p]
		}
	}
	return news, nil
}

// until polls until done says so, or ctx ends; of an imported history, until there is no more. Brokers that are away are waited
// for, as long as a fail-over may take.
func (l *logbook) until(ctx context.Context, poll func() (news bool, err error), done func() bool) error {
	var failing time.Time
	for {
		news, err := poll()
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !away(err), err != nil && !failing.IsZero() && time.Since(failing) > stallWithin:
			return err
		case err != nil && failing.IsZero():
			failing = time.Now()
		case err != nil:
		case done():
			return nil
		case news:
			failing = time.Time{}
			continue
		case l.history:
			return exit(exitRefused, "the namespace %s holds what `waybill import` brought, for reading: nothing more comes", l.cfg.Namespace)
		default:
			failing = time.Time{}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(tailEvery):
		}
	}
}

// startAt says by the broker's clock when the places were taken.
func (t *tail) startAt(at time.Time) {
	for p, place := range t.places {
		place.time = at.Add(-clockSpread)
		t.places[p] = place
	}
}
