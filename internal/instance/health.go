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

// Paths of probes. They need no token.
const (
	LivePath    = "/healthz"  // no loop of a role hangs
	ReadyPath   = "/readyz"   // all members have joined their groups, their partitions are restored, and the process isn't stopping
	StartedPath = "/startupz" // all roles have been started
)

// A console that was told to stop keeps answering until load balancers have noticed: until drainProbes readiness
// probes have failed, for at most drainMax. If no readiness probe came within drainProbedWithin, it stops at once.
const (
	drainProbes       = 3
	drainMax          = 15 * time.Second
	drainProbedWithin = time.Minute
)

// Health answers probes about a process. Liveness ignores brokers: a restart doesn't bring them back.
type Health struct {
	mu             sync.Mutex
	started        bool
	stopping       bool
	readyProbedAt  time.Time     // time of the latest readiness probe
	stoppingProbes int           // readiness probes that failed because the process is stopping
	drained        chan struct{} // closed when stoppingProbes reaches drainProbes
	loops          map[string]watchedLoop
	members        map[string]*memberHealth
}

// watchedLoop is the main loop of a role.
type watchedLoop interface {
	// Hangs returns how long the loop has made no progress, if that is too long; 0: it is fine.
	HungFor() time.Duration
}

// memberHealth is a member of a group, or a reader of all partitions.
type memberHealth struct {
	role    string // whose restored partitions count
	joined  bool
	waiting map[int32]bool // assigned partitions that it can't work on yet
	// caughtUp reports whether a partition was read up to where it ended. If nil, the role calls markRestored.
	caughtUp func(p int32) bool
}

func newHealth() *Health {
	return &Health{drained: make(chan struct{}), loops: map[string]watchedLoop{}, members: map[string]*memberHealth{}}
}

// markStarted records that the roles have been started.
func (h *Health) markStarted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started = true
}

// markStopping records that the process is stopping: it isn't ready any more, and stays live until it has ended.
func (h *Health) markStopping() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
}

// drain waits until load balancers have noticed that the process is stopping.
func (h *Health) drain() {
	h.mu.Lock()
	asked := !h.readyProbedAt.IsZero() && time.Since(h.readyProbedAt) < drainProbedWithin
	h.mu.Unlock()
	if !asked {
		return
	}
	within := time.NewTimer(drainMax)
	defer within.Stop()
	select {
	case <-h.drained:
	case <-within.C:
	}
}

// recordReadyProbe records a readiness probe and reports whether the process is stopping.
func (h *Health) recordReadyProbe() (stopping bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readyProbedAt = time.Now()
	if !h.stopping {
		return false
	}
	if h.stoppingProbes++; h.stoppingProbes == drainProbes {
		close(h.drained)
	}
	return true
}

// watchLoop watches a loop under a name, in place of the previous one of that name; nil removes it.
func (h *Health) watchLoop(name string, l watchedLoop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l == nil {
		delete(h.loops, name)
		return
	}
	h.loops[name] = l
}

// addMember declares a member that has not joined yet. It replaces a previous member of that name. If caughtUp
// isn't nil, it decides when a partition is restored.
func (h *Health) addMember(role, name string, caughtUp func(p int32) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.members[name] = &memberHealth{role: role, waiting: map[int32]bool{}, caughtUp: caughtUp}
}

// updateAssignment records that a member has joined. Added partitions wait until they are restored or have caught
// up.
func (h *Health) updateAssignment(name string, added, lost []int32) {
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

// markLeft records that a member has left its group, until it joins again.
func (h *Health) markLeft(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.members[name]; m != nil {
		m.joined = false
		clear(m.waiting)
	}
}

// markRestored records that members of a role can work on a partition.
func (h *Health) markRestored(role string, p int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.members {
		if m.role == role {
			delete(m.waiting, p)
		}
	}
}

// livenessFault returns what a restart would fix, or nil.
func (h *Health) livenessFault() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(h.loops)) {
		if d := h.loops[name].HungFor(); d > 0 {
			faults = append(faults, fmt.Errorf("%s: its loop has made no progress for %s", name, d.Round(time.Second)))
		}
	}
	return errors.Join(faults...)
}

// startFault returns why the process isn't started, or nil.
func (h *Health) startFault() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started {
		return errors.New("the roles are still starting")
	}
	return nil
}

// readinessFault returns what the process still waits for, or nil.
func (h *Health) readinessFault() error {
	if h.recordReadyProbe() {
		return errors.New("the process is stopping")
	}
	if err := h.startFault(); err != nil {
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
			faults = append(faults, fmt.Errorf("%s: has not started reading", name))
		case !m.joined:
			faults = append(faults, fmt.Errorf("%s: has not joined its group", name))
		case len(waiting) > 0:
			faults = append(faults, fmt.Errorf("%s: is restoring partitions %v", name, waiting))
		}
	}
	return errors.Join(faults...)
}

// ServeHTTP answers probes with 200 and "ok", or with 503 and the reasons.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ask := map[string]func() error{LivePath: h.livenessFault, ReadyPath: h.readinessFault, StartedPath: h.startFault}[r.URL.Path]
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
	_, _ = fmt.Fprintln(w, text) // the client may have disconnected
}

// mount registers the probes with a server.
func (h *Health) mount(mux *http.ServeMux) {
	for _, path := range []string{LivePath, ReadyPath, StartedPath} {
		mux.Handle("GET "+path, h)
	}
}

// watchedClient tells the watchdog when a worker is busy. While it waits for brokers it isn't: a restart doesn't
// bring them back.
type watchedClient struct {
	scheduler.Client
	health *Health
	name   string
	loop   *watchdog.Loop
}

// watchWorker starts watching a worker that was opened.
func (h *Health) watchWorker(name string, client scheduler.Client) watchedClient {
	w := watchedClient{client, h, name, &watchdog.Loop{}}
	w.loop.Begin()
	h.watchLoop(name, w.loop)
	return w
}

// Close stops watching and closes the client.
func (w watchedClient) Close() {
	w.health.watchLoop(w.name, nil)
	w.health.markLeft(w.name)
	w.Client.Close()
}

func (w watchedClient) Poll(ctx context.Context) ([]events.Record, error) {
	w.loop.End()
	defer w.loop.Begin()
	return w.Client.Poll(ctx)
}

func (w watchedClient) Commit(ctx context.Context, out []events.Record) (bool, error) {
	w.loop.End()
	defer w.loop.Begin()
	return w.Client.Commit(ctx, out)
}

func (w watchedClient) Abort(ctx context.Context) error {
	w.loop.End()
	defer w.loop.Begin()
	return w.Client.Abort(ctx)
}
