package bench

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/verify"
)

// verifyConcurrency is how many partitions are verified at once. Each takes memory for its tasks.
const verifyConcurrency = 2

// BrokenError says that a log breaks a promise, or doesn't contain what the run did.
type BrokenError struct{ Faults []string }

func (e *BrokenError) Error() string {
	return fmt.Sprintf("the log doesn't verify, so there is no result; %d faults, the first:\n  %s", len(e.Faults), strings.Join(e.Faults[:min(len(e.Faults), 10)], "\n  "))
}

// verify checks the log, and how many tasks are in which states. It returns the duration in seconds, which isn't
// part of what is measured.
func (s *environment) verify(ctx context.Context, o *Options, want map[events.TaskState]int) (float64, error) {
	began := time.Now()
	v := &verification{env: s, partitions: o.Load.Partitions, corruption: o.corruption, progress: o.progress, states: map[events.TaskState]int{}}
	if err := v.run(ctx); err != nil {
		return 0, fmt.Errorf("verify the log: %w", err)
	}
	for _, state := range events.TaskStates {
		v.expectCount("tasks "+string(state), v.states[state], want[state])
	}
	v.expectCount("dead letters", v.dead, 0)
	if len(v.faults) > 0 {
		return 0, &BrokenError{v.faults}
	}
	s.verified = v.events
	return time.Since(began).Seconds(), nil
}

// ends returns how many tasks of the load end in each state.
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

// verification is one pass over the log, partition by partition, so that memory is needed for a few partitions
// only.
type verification struct {
	env        *environment
	partitions int32
	corruption func(*events.Record)
	progress   func(what string, done, total int64)

	mu     sync.Mutex
	done   int64
	faults []string
	dead   int
	events int64
	states map[events.TaskState]int
}

func (v *verification) expectCount(what string, got, want int) {
	if got != want {
		v.faults = append(v.faults, fmt.Sprintf("the log holds %d %s, the run made %d", got, what, want))
	}
}

func (v *verification) run(ctx context.Context) error {
	reader, err := logreader.OpenRestorer(v.env.cfg, nil)
	if err != nil {
		return err
	}
	defer reader.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(verifyConcurrency)
	for p := range v.partitions {
		g.Go(func() error { return v.partition(ctx, reader, p) })
	}
	return g.Wait()
}

// partition verifies one: the inboxes first and the dead letters last, since inputs that were consumed when the
// events were read have their dead letters by then.
func (v *verification) partition(ctx context.Context, reader *logreader.Restorer, p int32) error {
	ns := v.env.cfg.Namespace
	// As `waybill verify` by default: how long a busy broker takes to write a reply says nothing about the agent.
	c := verify.New(verify.Options{Namespace: ns, Partitions: v.partitions, Inputs: true, Whole: true, ReplyTolerance: math.MaxInt64})
	in := logreader.Range{Partitions: []int32{p}, ReuseBuffers: true}
	for i := range events.Inboxes {
		if err := readInbox(ctx, reader, c, ns, i, p); err != nil {
			return err
		}
	}
	_, err := reader.ReadAll(ctx, ns.Events(), in, func(rs []events.Record) error {
		for i := range rs {
			if v.corruption != nil {
				v.corruption(&rs[i])
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
	v.addReport(c.Finish(time.Now()), dead)
	return nil
}

// readInbox feeds the remaining records of a partition of an inbox.
func readInbox(ctx context.Context, reader *logreader.Restorer, c *verify.Checker, ns events.Namespace, i events.Inbox, p int32) error {
	first := int64(-1)
	next, err := reader.ReadAll(ctx, ns.Inbox(i), logreader.Range{Partitions: []int32{p}, ReuseBuffers: true}, func(rs []events.Record) error {
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

func (v *verification) addReport(r *verify.Report, dead int) {
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
