package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/verify"
)

// verifyAtOnce is how many partitions are verified at once. Each takes memory for
// its tasks.
const verifyAtOnce = 2

// BrokenError is a log that doesn't keep what is promised, or doesn't hold what
// the run did.
type BrokenError struct{ Faults []string }

func (e *BrokenError) Error() string {
	return fmt.Sprintf("the log doesn't verify, so there is no result; %d faults, the first:\n  %s", len(e.Faults), strings.Join(e.Faults[:min(len(e.Faults), 10)], "\n  "))
}

// verify holds the log against what is promised, and against how many tasks it
// must have in which states, and returns the seconds that this took: they are no
// part of what was measured.
func (s *site) verify(ctx context.Context, o *Options, want map[events.TaskState]int) (float64, error) {
	began := time.Now()
	v := &verification{site: s, partitions: o.Load.Partitions, damage: o.damage, progress: o.progress, states: map[events.TaskState]int{}}
	if err := v.run(ctx); err != nil {
		return 0, fmt.Errorf("verify the log: %w", err)
	}
	for _, state := range events.TaskStates {
		v.expect("tasks "+string(state), v.states[state], want[state])
	}
	v.expect("dead letters", v.dead, 0)
	if len(v.faults) > 0 {
		return 0, &BrokenError{v.faults}
	}
	s.verified = v.events
	return time.Since(began).Seconds(), nil
}

// ends is how the tasks of the load must end.
func (l *Load) ends() map[events.TaskState]int {
	want := map[events.TaskState]int{}
	for n := range l.all() {
		if l.kindOf(n) == isUndone {
			want[events.StateUndone]++
		} else {
			want[events.StateProcessed]++
		}
	}
	return want
}

// verification is one reading of the log, partition by partition: so memory goes
// with the tasks of a few.
type verification struct {
	site       *site
	partitions int32
	damage     func(*events.Record)
	progress   func(what string, done, total int64)

	mu     sync.Mutex
	done   int64
	faults []string
	dead   int
	events int64
	states map[events.TaskState]int
}

func (v *verification) expect(what string, got, want int) {
	if got != want {
		v.faults = append(v.faults, fmt.Sprintf("the log holds %d %s, the run made %d", got, what, want))
	}
}

func (v *verification) run(ctx context.Context) error {
	reader, err := kafka.OpenRestorer(v.site.cfg, nil)
	if err != nil {
		return err
	}
	defer reader.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(verifyAtOnce)
	for p := range v.partitions {
		g.Go(func() error { return v.partition(ctx, reader, p) })
	}
	return g.Wait()
}

// partition verifies one: the inboxes first, the dead letters last, since what was
// consumed when the events were read has left its dead letter by then.
func (v *verification) partition(ctx context.Context, reader *kafka.Restorer, p int32) error {
	ns := v.site.cfg.Namespace
	c := verify.New(verify.Options{Namespace: ns, Partitions: v.partitions, Inputs: true, Whole: true})
	in := kafka.Range{Partitions: []int32{p}, ReuseBuffers: true}
	for i := range events.Inboxes {
		if err := readInbox(ctx, reader, c, ns, i, p); err != nil {
			return err
		}
	}
	_, err := reader.ReadAll(ctx, ns.Events(), in, func(rs []events.Record) error {
		for i := range rs {
			if v.damage != nil {
				v.damage(&rs[i])
			}
			c.Event(&rs[i])
		}
		return nil
	}, nil)
	if err != nil {
		return err
	}
	dead := 0
	_, err = reader.ReadAll(ctx, ns.Deadletters(), in, func(rs []events.Record) error {
		dead += len(rs)
		return nil
	}, nil)
	if err != nil {
		return err
	}
	v.add(c.Finish(time.Now()), dead)
	return nil
}

// readInbox feeds what is left of a partition of an inbox.
func readInbox(ctx context.Context, reader *kafka.Restorer, c *verify.Checker, ns events.Namespace, i events.Inbox, p int32) error {
	first := int64(-1)
	next, err := reader.ReadAll(ctx, ns.Inbox(i), kafka.Range{Partitions: []int32{p}, ReuseBuffers: true}, func(rs []events.Record) error {
		for k := range rs {
			if first < 0 {
				first = rs[k].Offset
			}
			c.Input(&rs[k])
		}
		return nil
	}, nil)
	if err != nil {
		return err
	}
	if first < 0 {
		first = next[p]
	}
	c.InputsRead(i, p, first, next[p])
	return nil
}

func (v *verification) add(r *verify.Report, dead int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range r.Faults {
		v.faults = append(v.faults, f.String())
	}
	for s, n := range r.States {
		v.states[s] += n
	}
	v.dead += dead
	v.events += int64(r.Events)
	v.done++
	if v.progress != nil {
		v.progress("verify", v.done, int64(v.partitions))
	}
}
