package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

const (
	// tailEvery is the interval between polls.
	tailEvery = 50 * time.Millisecond
	// clockSpread is an upper bound for the difference between brokers' clocks.
	clockSpread = time.Minute
)

// tail follows partitions of a topic by polling. It needs no consumer group: so no rights on groups are
// required, none is left behind, and the three seconds that Kafka waits for a new group don't apply.
//
// Of partitions that weren't read before, it leaves out records from before since.
type tail struct {
	log   *logbook
	topic string
	next  map[int32]int64 // offsets, by partition
	since time.Time
}

// poll passes new records to fn, and reports whether there were any.
func (t *tail) poll(ctx context.Context, fn func(*events.Record)) (news bool, err error) {
	ends, err := t.log.ends(ctx, t.topic)
	if err != nil {
		return false, err
	}
	for _, p := range slices.Sorted(maps.Keys(t.next)) {
		if ends[p] <= t.next[p] { // or it has no leader
			continue
		}
		in := logreader.Range{Partitions: []int32{p}, From: t.next[p], Blocked: ignoreHeld}
		if in.From == 0 {
			in.Since = t.since
		}
		reached, err := t.log.read(ctx, t.topic, in, func(r *events.Record) error {
			news = true
			fn(r)
			t.next[p] = r.Offset + 1 // at once: a read that fails midway is retried from here
			return nil
		})
		if err != nil {
			return news, err
		}
		t.next[p] = max(t.next[p], reached[p])
	}
	return news, nil
}

// pollForever polls until ctx ends. It tolerates unavailable brokers for stallTimeout.
func (l *logbook) pollForever(ctx context.Context, poll func() (news bool, err error)) error {
	var failing time.Time
	for {
		news, err := poll()
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !brokersUnavailable(err), err != nil && !failing.IsZero() && time.Since(failing) > stallTimeout:
			return err
		case err != nil && failing.IsZero():
			failing = time.Now()
		case err != nil:
		case news:
			failing = time.Time{}
			continue
		default:
			failing = time.Time{}
		}
		if backoff.Sleep(ctx, tailEvery) != nil {
			return ctx.Err()
		}
	}
}
