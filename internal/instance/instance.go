package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/supervisor"
	"github.com/waybill-run/waybill/workflow"
)

// reachWithin is how long a command waits for the first answer of a broker.
const reachWithin = 5 * time.Second

// Instance is what the roles of one process share. Its fields are set by Open
// and only read from then on.
type Instance struct {
	Kafka      kafka.Config
	Partitions int32
	ClusterID  string
	Name       string // of this process, in owners and ce_source
	DataDir    string // empty: a temporary folder for what opens a store
	History    bool   // the namespace was imported: nothing is to be written to it
	Clock      *kafka.Clock
	Admin      *kafka.Admin
	Producer   *kafka.Producer

	c       Config
	catalog *catalog
	metrics *Metrics
	log     *slog.Logger
	roles   *errgroup.Group
	keeps   atomic.Bool // copies of deleted definitions

	mu        sync.Mutex
	stores    []*projections.Store
	temporary string // the folder that goes with the process, if one was made
}

// Config is what an instance is made of, besides the connection.
type Config struct {
	// Name makes the instance a static member of its groups, so that a restart
	// keeps its partitions; empty: dynamic members.
	Name string
	// LeaveOnStop has a static member leave its groups when the instance stops, so
	// that others take its partitions at once. Without it they wait for it to come
	// back, for as long as its session lasts.
	LeaveOnStop bool
	// DataDir holds the projections; empty: a temporary folder, which goes
	// with the instance.
	DataDir string
	Metrics *Metrics
	Log     *slog.Logger
	// Session and Transaction are timeouts; FetchMaxWait is how long a fetch
	// waits for something to come. 0: the defaults.
	Session, Transaction time.Duration
	FetchMaxWait         time.Duration
	// OwnClock: the broker keeps the timestamps of those who write, whose
	// clocks are nobody's, so the process's own clock is the one to go by. So
	// it is with the embedded broker.
	OwnClock bool
	// Reads: the process only reads events, so that it may open an imported history.
	Reads bool
	// Snapshots say when a scheduler writes those of its partitions. The zero
	// value is good.
	Snapshots projections.SnapshotOptions
	// HotBytes bounds the open tasks that a scheduler keeps in memory; 0: the default.
	HotBytes int
	Seams    Seams
}

// Seams are where a test stands between a role and what it uses, to stop or
// kill it at a named point, or to give it another disk or clock. What is nil
// changes nothing.
type Seams struct {
	Worker   func(scheduler.Log) scheduler.Log
	History  func(scheduler.History) scheduler.History
	Tasks    func(int32, scheduler.Tasks) scheduler.Tasks
	Outbox   func(supervisor.Outbox) supervisor.Outbox
	Sessions func(agent.Session) agent.Session
	FS       projections.FS
	// Now is the wall clock of the process.
	Now func() time.Time
	// Standing is how often it is looked whether workers stand still.
	Standing time.Duration
}

// through is what a seam makes of a thing.
func through[T any](seam func(T) T, thing T) T {
	if seam == nil {
		return thing
	}
	return seam(thing)
}

// catalog is the compiled definitions and the watch that feeds them.
type catalog struct {
	*scheduler.CompiledDefinitions
	watch *kafka.Definitions
}

func (c *catalog) ReadToEndNow(ctx context.Context) error { return c.watch.ReadToEndNow(ctx) }

// ErrUnreachable is wrapped where no broker answers.
var ErrUnreachable = errors.New("unreachable")

// Reach fails early, and clearly, if no broker answers (ErrUnreachable), or none lets the client in.
func Reach(ctx context.Context, admin *kafka.Admin) error {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := admin.Ping(ctx); errors.Is(err, kafka.ErrLogin) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w: %w; check the network, name your brokers with --brokers, or start one with `waybill up`", ErrUnreachable, err)
	}
	return nil
}

// Open connects, and refuses to start where the topics aren't what their
// format record says.
func Open(ctx context.Context, cfg kafka.Config, c Config) (*Instance, error) {
	clock := kafka.NewClock()
	if c.Seams.Now != nil {
		clock = kafka.NewClockWith(c.Seams.Now)
	}
	n := &Instance{Kafka: cfg, DataDir: c.DataDir, Clock: clock, c: c, metrics: c.Metrics, log: c.Log}
	if !c.OwnClock {
		n.Kafka.Clock = clock
	}
	n.Kafka.Hooks = append(n.Kafka.Hooks, c.Metrics.hooks()...)
	c.Metrics.clock.Store(clock)
	n.Name = processName(c.Name)
	var err error
	if n.Admin, err = kafka.OpenAdmin(n.Kafka); err != nil {
		return nil, err
	}
	if err := Reach(ctx, n.Admin); err != nil {
		n.Admin.Close()
		return nil, err
	}
	if err := n.learn(ctx); err != nil {
		n.Admin.Close()
		return nil, err
	}
	n.Kafka.Reached = true
	if n.Producer, err = kafka.OpenProducer(n.Kafka); err != nil {
		n.Admin.Close()
		return nil, err
	}
	return n, nil
}

func (n *Instance) learn(ctx context.Context) error {
	check := n.Admin.CheckFormat
	if n.c.Reads {
		check = n.Admin.CheckReadable
	}
	format, err := check(ctx)
	if err != nil {
		return err
	}
	n.Partitions, n.History = format.Partitions, format.History
	n.ClusterID, err = n.Admin.ClusterID(ctx)
	return err
}

// processName names the process: the instance if it has a name, else something
// that no other process has.
func processName(instance string) string {
	if instance != "" {
		return instance
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString()[:8])
}

// Run starts roles, and waits until one of them can't go on (its error), or ctx
// ends (nil).
func (n *Instance) Run(ctx context.Context, start func(ctx context.Context) error) error {
	g, roles := errgroup.WithContext(ctx)
	n.roles = g
	if n.metrics != nil {
		defer context.AfterFunc(roles, n.metrics.health.stops)()
	}
	g.Go(func() error {
		err := start(roles)
		if err == nil && n.metrics != nil {
			n.metrics.health.begun()
		}
		if ctx.Err() != nil {
			return ctx.Err() // what was begun was cut off, and says so in its own words
		}
		return err
	})
	err := g.Wait()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = nil
	}
	return err
}

// Drained is a context that ends some time after ctx: the instance isn't ready from the end of ctx on, and what
// runs under Drained goes on until those that balance requests between instances know. Nobody waits if nobody asks.
func (n *Instance) Drained(ctx context.Context) (context.Context, context.CancelFunc) {
	drained, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		n.metrics.health.stops()
		n.metrics.health.drain()
		cancel()
	})
	return drained, func() {
		stop()
		cancel()
	}
}

// Go runs what belongs to the instance, from within Run: its error ends the rest.
func (n *Instance) Go(fn func() error) { n.roles.Go(fn) }

// CountDenied counts a request to a console with an invalid token.
func (n *Instance) CountDenied() { n.metrics.denied.Inc() }

// Health answers probes about the instance.
func (n *Instance) Health() http.Handler { return n.metrics.health }

// Logger is where what happens is told.
func (n *Instance) Logger() *slog.Logger { return n.log }

// Close gives everything back. Nothing of the instance may be used any more.
func (n *Instance) Close() {
	if n.catalog != nil {
		n.catalog.watch.Close()
	}
	n.Producer.Close()
	n.Admin.Close()
	if n.temporary != "" {
		// A temporary folder that can't be removed is the system's to sweep.
		_ = os.RemoveAll(n.temporary)
	}
}

// follow starts to follow the definitions, if nobody did, and returns when they are
// read. It is called within Run, which ends when they can't be followed any more.
func (n *Instance) follow(ctx context.Context) error {
	if n.catalog != nil {
		return n.catalog.ReadToEndNow(ctx)
	}
	c := &scheduler.CompiledDefinitions{Rejected: func(key string, err error) { n.rejectedDefinition(ctx, key, err) },
		Deleted: func(d *workflow.Definition) {
			if n.keeps.Load() {
				n.keepDefinition(ctx, d)
			}
		}}
	watch, err := kafka.WatchDefinitions(ctx, n.Kafka, func(r events.Record) { c.Apply(&r) })
	if err != nil {
		return err
	}
	n.catalog = &catalog{c, watch}
	n.roles.Go(func() error {
		select {
		case <-ctx.Done():
		case <-watch.Done():
			if err := watch.Err(); err != nil { // what is applied from now on would be unknown here
				return fmt.Errorf("follow the workflow definitions: %w", err)
			}
		}
		return nil
	})
	return watch.ReadToEndNow(ctx)
}

// rejectedDefinition: what doesn't compile is ignored, with an alert.
func (n *Instance) rejectedDefinition(ctx context.Context, key string, err error) {
	n.log.Warn("definition ignored", "key", key, "error", err)
	if n.History {
		return
	}
	a := &events.Alert{Code: "bad_definition", Message: fmt.Sprintf("definition %s is ignored: %v", key, err), At: events.Millis(n.Clock.Now())}
	n.Producer.SendAsync(ctx, a.Record(n.Kafka.Namespace, n.source("scheduler"), "definition/"+key+"/"+n.Name), func(_ events.Record, err error) {
		if err != nil {
			n.log.Error("alert not written", "error", err)
		}
	})
}

// keepDeleted has a scheduler keep what tasks began with: copies of the definitions that were deleted, and
// that will be, are written under keys of their own. Compaction then leaves them.
func (n *Instance) keepDeleted(ctx context.Context) {
	if n.History || n.keeps.Swap(true) {
		return
	}
	for _, d := range n.catalog.DeletedWithoutCopy() {
		n.keepDefinition(ctx, d)
	}
}

func (n *Instance) keepDefinition(ctx context.Context, d *workflow.Definition) {
	n.log.Warn("definition was deleted; its tasks keep it, and new orders of it are refused", "key", d.Key())
	key := events.KeptDefinition(d.Key())
	r := events.Record{Topic: n.Kafka.Namespace.Definitions(), Partition: -1, Key: []byte(key), Value: d.Stored(),
		Headers: events.CloudHeaders(events.TypeDefinition, n.source("scheduler"), key)}
	n.Producer.SendAsync(ctx, r, func(_ events.Record, err error) {
		if err != nil && ctx.Err() == nil {
			n.log.Error("no copy of a deleted definition is kept: once the topic is compacted its open tasks lack it; apply it again", "key", d.Key(), "error", err)
		}
	})
}

func (n *Instance) source(role string) string {
	return string(n.Kafka.Namespace) + role + "/" + n.Name
}

// member is a group instance id, if this process is to be a static member.
func (n *Instance) member(role string) string {
	if n.c.Name == "" {
		return ""
	}
	return string(n.Kafka.Namespace) + role + "." + n.c.Name
}

// leavesOnStop is for a member that may close and open again while the roles
// run: then it stays. ctx ends when they stop.
func (n *Instance) leavesOnStop(ctx context.Context) func() bool {
	return func() bool { return n.c.LeaveOnStop && ctx.Err() != nil }
}

// leaves is for a member that closes when it stops, or can't work: others are to
// have its partitions.
func (n *Instance) leaves() bool { return n.c.LeaveOnStop }

// store opens the projection store of a role; it is flushed and closed when
// the roles end.
func (n *Instance) store(ctx context.Context, view string) (*projections.Store, error) {
	dir, err := n.folder()
	if err != nil {
		return nil, err
	}
	id := projections.Identity{ClusterID: n.ClusterID, Namespace: n.Kafka.Namespace, Partitions: n.Partitions, View: view}
	s, err := projections.Open(filepath.Join(dir, view), id, projections.Options{FS: n.c.Seams.FS, HotBytes: n.c.HotBytes, Snapshots: n.c.Snapshots, Listener: &projections.Listener{
		Fatal:      func(err error) { n.log.Error("store stopped", "view", view, "error", err) },
		Background: func(err error) { n.log.Warn("store", "view", view, "error", err) },
		Snapshot: func(p int32, of events.Snapshot) {
			n.metrics.snapshotAt.WithLabelValues(strconv.Itoa(int(p))).Set(float64(of.State.At.UnixMilli()) / 1000)
		},
	}})
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.stores = append(n.stores, s)
	n.mu.Unlock()
	n.roles.Go(func() error {
		if err := s.Run(ctx); !errors.Is(err, projections.ErrClosed) {
			return err
		}
		return nil // by its role, which ends and says why
	})
	return s, nil
}

// folder is where the stores are.
func (n *Instance) folder() (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.DataDir != "" || n.temporary != "" {
		return cmp.Or(n.DataDir, n.temporary), nil
	}
	var err error
	n.temporary, err = os.MkdirTemp("", "waybill-")
	if err != nil {
		return "", fmt.Errorf("%w; name a directory with --data-dir, or one for temporary files with TMPDIR", err)
	}
	return n.temporary, nil
}

// Stores are the stores of the roles that were started, for who measures them. One is closed when its role ends.
func (n *Instance) Stores() []*projections.Store {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.stores)
}
