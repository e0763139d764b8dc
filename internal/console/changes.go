package console

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/index"
)

// changes streams what changed, so that a client needs to ask for its lists only then.
func (c *call) changes(*noParameters) (none eventStream, err error) {
	s, ctx, release, err := c.openStream()
	if err != nil {
		return none, err
	}
	defer release()
	f := newChangeFeed(c)
	ctx, stop := context.WithCancel(ctx)
	defer f.close(stop)
	f.observeFirst(ctx)
	if err := s.sendHeaders(); err != nil {
		return s.endStream(err)
	}
	batches := f.batchesChanged()
	observe := time.NewTicker(c.timeouts.observe)
	defer observe.Stop()
	for n := 1; ; {
		seen := consoleapi.Changes{What: []string{}, Tasks: []string{}}
		select {
		case <-f.watch.News():
		case <-batches:
			batches = f.batchesChanged()
			seen.What = append(seen.What, consoleapi.ChangedBatches)
		case <-observe.C:
			unfinished := len(f.pending) > 0
			if f.observeAll(ctx); !unfinished {
				continue // a message follows when all are observed
			}
		case l := <-f.observed:
			if f.update(l, &seen); len(seen.What) == 0 && len(f.pending) > 0 {
				continue
			}
		case <-ctx.Done():
			return none, nil
		}
		if s.tokenRevoked() {
			return none, nil
		}
		if wait := c.timeouts.changes - time.Since(s.lastWrite); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return none, nil
			}
		}
		f.add(&seen)
		if err := s.sendChanges(n, &seen); err != nil {
			return s.endStream(err)
		}
		n++
	}
}

// sendChanges sends a message of a stream of changes.
func (s *stream) sendChanges(n int, seen *consoleapi.Changes) error {
	kind := consoleapi.ChangesEvent
	if len(seen.What) == 0 {
		kind = consoleapi.BeatEvent // the client knows that what it shows is of now
	}
	data, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	return s.send(fmt.Appendf(nil, "id: %d\nevent: %s\ndata: %s\n\n", n, kind, data))
}

// changeFeed finds what changed for one stream. What isn't in the index is observed in goroutines of its own, since
// Kafka can take long to answer. Until it has answered, nothing has changed.
type changeFeed struct {
	*call
	watch     *index.Watch
	last      map[string]any  // by the name of a change: what was seen last
	pending   map[string]bool // the views that are being observed
	observed  chan observation
	observing sync.WaitGroup
}

// observation is the current value of a view; nil: it can't be read.
type observation struct {
	name  string
	value any
}

func newChangeFeed(c *call) *changeFeed {
	f := &changeFeed{call: c, watch: c.cfg.Index.Watch(), last: map[string]any{}, pending: map[string]bool{}}
	f.observed = make(chan observation, len(f.views()))
	return f
}

// close ends the observations and waits for their end.
func (f *changeFeed) close(stop func()) {
	stop()
	f.observing.Wait()
	f.watch.Close()
}

// observeFirst observes what later observations are compared with: the client asks for its lists after the stream has begun, so a
// change after that must not be missed. It waits for a short time. What isn't known by then is reported when it is.
func (f *changeFeed) observeFirst(ctx context.Context) {
	f.observeAll(ctx)
	within := time.NewTimer(f.timeouts.firstObservation)
	defer within.Stop()
	for len(f.pending) > 0 {
		select {
		case l := <-f.observed:
			f.update(l, &consoleapi.Changes{})
		case <-within.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// observeAll observes each view that isn't being observed.
func (f *changeFeed) observeAll(ctx context.Context) {
	since := time.Now().Add(-f.timeouts.observe / 2)
	for name, view := range f.views() {
		if f.pending[name] {
			continue
		}
		f.pending[name] = true
		f.observing.Go(func() { f.observed <- observation{name, view(ctx, since)} })
	}
}

// update adds a change if a view has another value than at the last observation. What can't be read has changed once.
func (f *changeFeed) update(l observation, to *consoleapi.Changes) {
	delete(f.pending, l.name)
	if last, known := f.last[l.name]; !known || !reflect.DeepEqual(l.value, last) {
		to.What = append(to.What, l.name)
	}
	f.last[l.name] = l.value
}

// views are what is observed, by the name of its change. All streams share what is read.
func (f *changeFeed) views() map[string]func(ctx context.Context, since time.Time) any {
	within := f.timeouts.answer
	return map[string]func(context.Context, time.Time) any{
		consoleapi.ChangedIndex:     func(context.Context, time.Time) any { return f.incompleteness() },
		consoleapi.ChangedWorkflows: func(context.Context, time.Time) any { return f.definitionNames() },
		consoleapi.ChangedAgents: func(ctx context.Context, since time.Time) any {
			agents, _, err := f.sampledAgents.get(ctx, since, within)
			return orFailed(agents, err)
		},
		consoleapi.ChangedPartitions: func(ctx context.Context, since time.Time) any {
			scheduling, _, err := f.sampledScheduling.get(ctx, since, within)
			return orFailed(scheduling, err)
		},
		consoleapi.ChangedAlerts:      func(ctx context.Context, since time.Time) any { return f.recentAlerts.version(ctx, since, within) },
		consoleapi.ChangedDeadletters: func(ctx context.Context, since time.Time) any { return f.recentLetters.version(ctx, since, within) },
	}
}

// batchesChanged returns a channel that is closed at the next change of a batch; nil: this console has no batches.
func (f *changeFeed) batchesChanged() <-chan struct{} {
	if f.cfg.Batches == nil {
		return nil
	}
	return f.cfg.Batches.Changed()
}

// add adds what the index has applied.
func (f *changeFeed) add(to *consoleapi.Changes) {
	applied := f.watch.Take()
	to.Tasks, to.More = append(to.Tasks, applied.Tasks...), applied.More
	if applied.Holds {
		to.What = append(to.What, consoleapi.ChangedHolds)
	}
	if applied.Any() {
		to.What = append(to.What, consoleapi.ChangedTasks)
	}
	slices.Sort(to.What)
}

// orFailed is a value, or nil if it can't be had.
func orFailed(value any, err error) any {
	if err != nil {
		return nil
	}
	return value
}

// incompleteness is what answers of the index lack.
func (f *changeFeed) incompleteness() any {
	lacks := map[int32]string{}
	for p, at := range f.cfg.Index.Progress() {
		if lacks[p] = f.whyIncomplete(at); lacks[p] != "" {
			lacks[p] += strconv.FormatFloat(at.Restored(), 'f', 2, 64)
		}
	}
	return lacks
}

func (f *changeFeed) definitionNames() any {
	var names []string
	for _, w := range f.cfg.Cluster.Workflows() {
		name := w.Name + "/" + strconv.Itoa(w.Version)
		if w.Deprecated != nil {
			name += " is deprecated: " + w.Deprecated.Why
		}
		names = append(names, name)
	}
	return names
}
