package index

import (
	"slices"
	"sync"

	"github.com/waybill-run/waybill/events"
)

// watchedTasksMax bounds the ids of Changes.
const watchedTasksMax = 100

// Changes are what was applied in a while.
type Changes struct {
	Tasks []string // tasks with new events, at most watchedTasksMax, in order
	More  bool     // others have new events, too
	Holds bool     // a hold of a task began or ended
}

// Any reports whether anything changed.
func (c *Changes) Any() bool { return len(c.Tasks) > 0 || c.More || c.Holds }

// Watches are the open watches of an index. The zero value is ready. It is safe for concurrent use.
type Watches struct {
	mu  sync.Mutex
	all map[*Watch]bool
}

// Watch collects changes, in bounded memory.
type Watch struct {
	of    *Watches
	news  chan struct{}
	tasks map[string]bool
	more  bool
	holds bool
}

// Watch begins to collect changes. Close ends it.
func (ws *Watches) Watch() *Watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := &Watch{of: ws, news: make(chan struct{}, 1), tasks: map[string]bool{}}
	if ws.all == nil {
		ws.all = map[*Watch]bool{}
	}
	ws.all[w] = true
	return w
}

// Add adds records that were applied to all watches. holds: they began or ended holds.
func (ws *Watches) Add(records []events.Record, holds bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all) == 0 || len(records) == 0 {
		return
	}
	for w := range ws.all {
		w.holds = w.holds || holds
		w.add(records)
		select {
		case w.news <- struct{}{}:
		default: // a value is pending
		}
	}
}

func (w *Watch) add(records []events.Record) {
	for i := range records {
		key := records[i].Key
		switch {
		case w.more:
			return
		case len(key) == 0 || w.tasks[string(key)]:
		case len(w.tasks) == watchedTasksMax:
			w.more = true
		default:
			w.tasks[string(key)] = true
		}
	}
}

// News receives a value after changes. Several may be merged into one.
func (w *Watch) News() <-chan struct{} { return w.news }

// Take returns the changes since the last call.
func (w *Watch) Take() Changes {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	c := Changes{More: w.more, Holds: w.holds}
	for id := range w.tasks {
		c.Tasks = append(c.Tasks, id)
	}
	slices.Sort(c.Tasks)
	clear(w.tasks)
	w.more, w.holds = false, false
	return c
}

// Close ends the watch.
func (w *Watch) Close() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	delete(w.of.all, w)
}
