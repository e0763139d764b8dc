package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
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
	f := changeFeed{call: c, watch: c.cfg.Index.Watch()}
	defer f.watch.Close()
	f.look(ctx) // what it compares with: the client asks for its lists after the stream has begun
	if err := s.begin(); err != nil {
		return s.endStream(err)
	}
	batches := f.batchesChanged()
	look := time.NewTicker(c.timeouts.look)
	defer look.Stop()
	var text bytes.Buffer
	for n := 1; ; {
		seen := consoleapi.Changes{What: []string{}, Tasks: []string{}}
		select {
		case <-f.watch.News():
		case <-batches:
			batches = f.batchesChanged()
			seen.What = append(seen.What, consoleapi.ChangedBatches)
		case <-look.C:
			seen.What = append(seen.What, f.look(ctx)...)
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
		text.Reset()
		kind := consoleapi.ChangesEvent
		if len(seen.What) == 0 {
			kind = consoleapi.BeatEvent // the client knows that what it shows is of now
		}
		data, err := json.Marshal(&seen)
		if err != nil {
			return s.endStream(err)
		}
		fmt.Fprintf(&text, "id: %d\nevent: %s\ndata: %s\n\n", n, kind, data)
		n++
		if err := s.send(text.Bytes()); err != nil {
			return s.endStream(err)
		}
	}
}

// changeFeed finds what changed for one stream.
type changeFeed struct {
	*call
	watch *index.Watch
	last  map[string]any // by the name of a change: what was seen last
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

// look returns which of the rest has changed since the last look. What can't be read has changed once. All streams share
// what is read.
func (f *changeFeed) look(ctx context.Context) (changed []string) {
	now := map[string]any{consoleapi.ChangedIndex: f.incompleteness(), consoleapi.ChangedWorkflows: f.definitionNames()}
	since := time.Now().Add(-f.timeouts.look / 2)
	agents, _, err := f.sampledAgents.get(ctx, since, f.timeouts.answer)
	now[consoleapi.ChangedAgents] = orFailed(agents, err)
	scheduling, _, err := f.sampledScheduling.get(ctx, since, f.timeouts.answer)
	now[consoleapi.ChangedPartitions] = orFailed(scheduling, err)
	now[consoleapi.ChangedAlerts] = f.recentAlerts.version(ctx, since, f.timeouts.answer)
	now[consoleapi.ChangedDeadletters] = f.recentLetters.version(ctx, since, f.timeouts.answer)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if f.last != nil && !reflect.DeepEqual(now[name], f.last[name]) {
			changed = append(changed, name)
		}
	}
	f.last = now
	return changed
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
