package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/watchdog"
	"github.com/waybill-run/waybill/scheduler"
)

// The paths of probes. They need no token.
const (
	LivePath    = "/healthz"  // the loops of the roles move
	ReadyPath   = "/readyz"   // all members have joined their groups, their partitions are restored, and nothing stops
	StartedPath = "/startupz" // the roles have been started
)

// How long a console goes on answering once it is told to stop, so that load balancers learn it: until drainProbes of
// them were told, for drainMost at most. It doesn't wait if nobody has asked whether it is ready for drainUnasked.
const (
	drainProbes  = 3
	drainMost    = 15 * time.Second
	drainUnasked = time.Minute
)

// Health is what probes ask of a process. Liveness says nothing about brokers:
// a restart doesn't bring them back.
type Health struct {
	mu       sync.Mutex
	started  bool
	stopping bool
	asked    time.Time     // when it was asked last whether the process is ready
	told     int           // probes that heard that it stops
	drained  chan struct{} // closed when drainProbes were
	loops    map[string]watchedLoop
	members  map[string]*memberHealth
}

// watchedLoop is what a role does again and again.
type watchedLoop interface {
	// HungFor is how long it has stood still, if that is too long; 0: it moves.
	HungFor() time.Duration
}

// memberHealth is one membership of a group, or a reader of all partitions.
type memberHealth struct {
	role    string // what restores its partitions
	joined  bool
	waiting map[int32]bool // partitions that it has and can't work in yet
	// caughtUp reports that a partition has been read to where it ended; nil: the
	// role calls restored.
	caughtUp func(p int32) bool
}

func newHealth() *Health {
	return &Health{drained: make(chan struct{}), loops: map[string]watchedLoop{}, members: map[string]*memberHealth{}}
}

// begun records that the roles have been started.
func (h *Health) begun() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started = true
}

// stops records that the process begins to stop: it is not ready any more, and lives until it has ended.
func (h *Health) stops() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
}

// drain waits until load balancers know that the process stops.
func (h *Health) drain() {
	h.mu.Lock()
	asked := !h.asked.IsZero() && time.Since(h.asked) < drainUnasked
	h.mu.Unlock()
	if !asked {
		return
	}
	within := time.NewTimer(drainMost)
	defer within.Stop()
	select {
	case <-h.drained:
	case <-within.C:
	}
}

// probed records that it was asked whether the process is ready. It reports whether it stops.
func (h *Health) probed() (stopping bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = time.Now()
	if !h.stopping {
		return false
	}
	if h.told++; h.told == drainProbes {
		close(h.drained)
	}
	return true
}

// loop has a loop watched, in place of the one that had its name; nil: none.
func (h *Health) loop(name string, l watchedLoop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l == nil {
		delete(h.loops, name)
		return
	}
	h.loops[name] = l
}

// member declares a member that has not joined yet; opened again it is a new one.
// caughtUp is asked about its partitions, if not nil.
func (h *Health) member(role, name string, caughtUp func(p int32) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.members[name] = &memberHealth{role: role, waiting: map[int32]bool{}, caughtUp: caughtUp}
}

// assigned records that a member has joined. Partitions that were added wait until
// they are restored, or have caught up once.
func (h *Health) assigned(name string, added, lost []int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.members[name]
	if m == nil {
		return
	}
	m.joined = true
	for _, p := range lost {
		delete(m.waiting, p)
	}
	for _, p := range added {
		m.waiting[p] = true
	}
}

// left records that a member is in its group no more, until it has joined again.
func (h *Health) left(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.members[name]; m != nil {
		m.joined = false
		clear(m.waiting)
	}
}

// restored records that members of a role can work in a partition.
func (h *Health) restored(role string, p int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.members {
		if m.role == role {
			delete(m.waiting, p)
		}
	}
}

// live is why a restart would help, or nil.
func (h *Health) live() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(h.loops)) {
		if d := h.loops[name].HungFor(); d > 0 {
			faults = append(faults, fmt.Errorf("%s: its loop has not moved for %s", name, d.Round(time.Second)))
		}
	}
	return errors.Join(faults...)
}

// startedUp is why the process isn't started, or nil.
func (h *Health) startedUp() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started {
		return errors.New("the roles are being started")
	}
	return nil
}

// ready is what the process still waits for, or nil.
func (h *Health) ready() error {
	if h.probed() {
		return errors.New("the process stops")
	}
	if err := h.startedUp(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(h.members)) {
		m := h.members[name]
		if m.caughtUp != nil {
			maps.DeleteFunc(m.waiting, func(p int32, _ bool) bool { return m.caughtUp(p) })
		}
		waiting := slices.Sorted(maps.Keys(m.waiting))
		switch {
		case !m.joined && m.caughtUp != nil:
			faults = append(faults, fmt.Errorf("%s: it hasn't begun to read", name))
		case !m.joined:
			faults = append(faults, fmt.Errorf("%s: it has not joined its group", name))
		case len(waiting) > 0:
			faults = append(faults, fmt.Errorf("%s: it restores partitions %v", name, waiting))
		}
	}
	return errors.Join(faults...)
}

// ServeHTTP answers probes: 200 and "ok", or 503 and why not.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ask := map[string]func() error{LivePath: h.live, ReadyPath: h.ready, StartedPath: h.startedUp}[r.URL.Path]
	if ask == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	text := "ok"
	if err := ask(); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	_, _ = fmt.Fprintln(w, text) // whoever asked may have gone
}

// mount has a server answer probes.
func (h *Health) mount(mux *http.ServeMux) {
	for _, path := range []string{LivePath, ReadyPath, StartedPath} {
		mux.Handle("GET "+path, h)
	}
}

// watchedLog marks when a worker does something by itself: not while it waits for
// brokers, which a restart doesn't bring back.
type watchedLog struct {
	scheduler.Log
	health *Health
	name   string
	loop   *watchdog.Loop
}

// watched begins to watch a worker that was opened.
func (h *Health) watched(name string, log scheduler.Log) watchedLog {
	w := watchedLog{log, h, name, &watchdog.Loop{}}
	w.loop.Begin()
	h.loop(name, w.loop)
	return w
}

// Close ends that.
func (w watchedLog) Close() {
	w.health.loop(w.name, nil)
	w.health.left(w.name)
	w.Log.Close()
}

func (w watchedLog) Poll(ctx context.Context) ([]events.Record, error) {
	w.loop.End()
	defer w.loop.Begin()
	return w.Log.Poll(ctx)
}

func (w watchedLog) Commit(ctx context.Context, out []events.Record) (bool, error) {
	w.loop.End()
	defer w.loop.Begin()
	return w.Log.Commit(ctx, out)
}

func (w watchedLog) Abort(ctx context.Context) error {
	w.loop.End()
	defer w.loop.Begin()
	return w.Log.Abort(ctx)
}
