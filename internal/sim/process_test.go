//go:build synctests

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/internal/chaos/point"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
)

// role is what a process runs.
type role struct {
	name   string
	points []point.Point // the points that it passes
	start  func(ctx context.Context, w *simulation, n *instance.Instance) error
}

// restartAfter is the pause after which the platform restarts an ended process.
const restartAfter = 500 * time.Millisecond

// process is one process of the simulation, across its restarts.
type process struct {
	w      *simulation
	name   string
	role   role
	static bool // a static member of its groups
	rnd    *rand.Rand

	mu    sync.Mutex
	disk  *vfs.MemFS
	life  *life
	down  time.Time     // when it may be restarted
	skew  time.Duration // of its clock
	full  bool          // its disk
	until sync.WaitGroup
}

// life is a process between a start and its end.
type life struct {
	p      *process
	ctx    context.Context
	net    *network
	fs     *vfs.MemFS
	cancel context.CancelFunc
	clock  time.Duration // how far the clock is ahead

	mu    sync.Mutex
	traps map[point.Point]trap
	hold  chan struct{} // closed when a stop ends
}

// trap is an action at the pass of a point.
type trap struct {
	after int // number of passes to skip
	do    func()
}

// run starts the process repeatedly until ctx ends.
func (p *process) run(ctx context.Context) {
	for ctx.Err() == nil {
		p.mu.Lock()
		wait := max(restartAfter, time.Until(p.down))
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		l := p.begin(ctx)
		ended := make(chan struct{})
		p.until.Go(func() {
			defer close(ended)
			l.live()
		})
		select {
		case <-ended:
		case <-l.net.killed: // its remaining goroutines end on their own
		}
	}
}

func (p *process) begin(ctx context.Context) *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	l := &life{p: p, net: newNetwork(p.w.broker.Dial, rand.New(rand.NewPCG(p.rnd.Uint64(), 0))), cancel: cancel, clock: p.skew, traps: map[point.Point]trap{}}
	l.ctx, l.fs = ctx, p.disk
	p.life = l
	return l
}

// live runs one life to its end.
func (l *life) live() {
	p := l.p
	defer l.cancel()
	cfg := kafka.Config{Brokers: p.w.broker.Addrs, Namespace: p.w.ns, ClientID: p.name, Dial: point.Dial(l.net.dial, l.pass)}
	seams := point.Seams(l.pass)
	watched := seams.Sessions
	seams.Sessions = func(s agent.Session) agent.Session { return watched(&gossip{s, p.w.services}) }
	tasks := seams.Tasks
	seams.Tasks = func(id int32, t scheduler.Tasks) scheduler.Tasks { return tasks(id, &taker{t, p.w}) }
	seams.FS = projections.FS(&disk{FS: l.fs, l: l})
	seams.Now = func() time.Time { return time.Now().Add(l.clock) }
	c := instance.Config{DataDir: "data", Metrics: instance.NewMetrics(), Log: p.w.log(p.name), Session: sessionTimeout, Transaction: transactionTimeout, FetchMaxWait: fetchMaxWait, Seams: seams, Snapshots: p.w.often, HotBytes: hotBytes}
	if p.static {
		c.Name = p.name
	}
	n, err := instance.Open(l.ctx, cfg, c)
	if err != nil {
		p.w.note(p.name, "can't start: %v", err)
		return
	}
	defer n.Close()
	err = n.Run(l.ctx, func(ctx context.Context) error { return p.role.start(ctx, p.w, n) })
	if err != nil && !l.net.isDead() {
		p.w.note(p.name, "ended: %v", err)
	}
}

// pass is called at each named point, by the goroutine that passes it.
func (l *life) pass(at point.Point) {
	l.mu.Lock()
	t, armed := l.traps[at]
	hold := l.hold
	switch {
	case armed && t.after > 0:
		t.after--
		l.traps[at] = t
		armed = false
	case armed:
		delete(l.traps, at)
	}
	l.mu.Unlock()
	if armed {
		t.do()
		l.mu.Lock()
		hold = l.hold
		l.mu.Unlock()
	}
	if hold != nil {
		select {
		case <-hold:
		case <-l.net.killed:
		}
	}
}

// kill ends a life as SIGKILL does. For the disk it acts as a power failure: of the unsynced data, the given percentage
// survives.
func (p *process) kill(unsynced int, down time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.life
	if l == nil || l.net.isDead() {
		return
	}
	p.disk = p.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: p.rnd})
	p.down = time.Now().Add(down)
	l.net.kill()
	l.resume()
	l.cancel()
}

// loseDisk makes the next life start with an empty disk.
func (p *process) loseDisk() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disk = vfs.NewCrashableMem()
}

// stop blocks the process for d, at the network and at the named points.
func (p *process) stop(d time.Duration) {
	p.mu.Lock()
	l := p.life
	p.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	if l.hold == nil {
		l.hold = make(chan struct{})
	}
	l.mu.Unlock()
	l.net.freeze()
	time.AfterFunc(d, l.resume)
}

func (l *life) resume() {
	l.mu.Lock()
	if l.hold != nil {
		close(l.hold)
		l.hold = nil
	}
	l.mu.Unlock()
	l.net.thaw()
}

// trap sets an action at a point of the current life.
func (p *process) trap(at point.Point, after int, do func()) {
	p.mu.Lock()
	l := p.life
	p.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.traps[at] = trap{after, do}
}

// setClock sets the wall clock of the machine. A process reads it once, when it starts, and then uses the monotonic
// clock.
func (p *process) setClock(skew time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skew = skew
}

// mend ends all faults of the process.
func (p *process) mend() {
	p.setClock(0)
	p.mu.Lock()
	p.full = false
	p.down = time.Time{}
	l := p.life
	p.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	clear(l.traps)
	l.mu.Unlock()
	l.net.slow(0)
	l.net.heal()
	l.resume()
}

func (p *process) net() *network {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil {
		return nil
	}
	return p.life.net
}

func (p *process) String() string { return fmt.Sprintf("%s (%s)", p.name, p.role.name) }
