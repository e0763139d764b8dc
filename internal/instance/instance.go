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
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/supervisor"
	"github.com/waybill-run/waybill/workflow"
)

// reachWithin is how long a command waits for the first response of a broker.
const reachWithin = 5 * time.Second

// Instance is what the roles of one process share. Open sets its fields; afterwards they are read only.
type Instance struct {
	Kafka      kafka.Config
	Partitions int32
	ClusterID  string
	Name       string // of this process, in owners and ce_source
	DataDir    string // empty: a temporary folder, if a role needs a store
	Clock      *brokerclock.Clock
	Admin      *kafkaadmin.Admin
	Producer   *kafka.Producer

	config       Config
	catalog      *catalog
	metrics      *Metrics
	log          *slog.Logger
	roles        *errgroup.Group
	keepsDeleted atomic.Bool // whether copies of deleted definitions are written
	// definitionsChanged is when a record of the definitions was read last; nil: none was.
	definitionsChanged atomic.Pointer[time.Time]

	mu        sync.Mutex
	stores    []*projections.Store
	temporary string // folder to be removed by Close, if one was created
}

// Config configures an instance, besides its connection.
type Config struct {
	// Name makes the instance a static member of its groups, so that a restart keeps its partitions; empty:
	// dynamic members.
	Name string
	// LeaveOnStop makes a static member leave its groups when the instance stops, so that other members take over
	// at once. Otherwise its partitions wait for its return, for at most the session timeout.
	LeaveOnStop bool
	// DataDir holds the projections; empty: a temporary folder, which is removed with the instance.
	DataDir string
	Metrics *Metrics
	Log     *slog.Logger
	// Session and Transaction are timeouts. FetchMaxWait is how long a broker may delay an empty fetch. 0: the
	// defaults.
	Session, Transaction time.Duration
	FetchMaxWait         time.Duration
	// OwnClock makes the process use its own clock and not the brokers'. The embedded broker keeps the timestamps
	// of its producers, so its clock says nothing.
	OwnClock bool
	// Snapshots configures when a scheduler writes snapshots of its partitions. The zero value is a good default.
	Snapshots projections.SnapshotOptions
	// HotBytes bounds the open tasks that a scheduler keeps in memory, in bytes; 0: the default.
	HotBytes int
	// EndProcess ends the process after a disk failed. It must not return; nil: the process panics. Any goroutine may
	// call it, also several at once.
	EndProcess func(error)
	Seams      Seams
}

// Seams wrap the dependencies of a role. Tests use them to stop or kill a role at a named point, or to replace the
// disk or the clock. nil fields change nothing.
type Seams struct {
	Worker   func(scheduler.Client) scheduler.Client
	History  func(scheduler.History) scheduler.History
	Tasks    func(int32, scheduler.Tasks) scheduler.Tasks
	Outbox   func(supervisor.Outbox) supervisor.Outbox
	Sessions func(agent.Session) agent.Session
	FS       projections.FS
	// Now is the wall clock of the process.
	Now func() time.Time
	// StallCheckEvery is the interval of the checks for stalled workers; 0: the default.
	StallCheckEvery time.Duration
}

// wrapped applies a seam; nil: it returns the thing unchanged.
func wrapped[T any](seam func(T) T, thing T) T {
	if seam == nil {
		return thing
	}
	return seam(thing)
}

// catalog is the compiled definitions, and the watch that updates them.
type catalog struct {
	*scheduler.CompiledDefinitions
	watch *logreader.Definitions
}

func (c *catalog) ReadToEndNow(ctx context.Context) error { return c.watch.ReadToEndNow(ctx) }

// ErrUnreachable is wrapped if no broker responds.
var ErrUnreachable = errors.New("unreachable")

// CheckReachable fails early if no broker responds (ErrUnreachable) or the login is refused.
func CheckReachable(ctx context.Context, admin *kafkaadmin.Admin) error {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := admin.Ping(ctx); errors.Is(err, kafkaadmin.ErrLogin) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w: %w; check the network, name your brokers with --brokers, or start one with `waybill up`", ErrUnreachable, err)
	}
	return nil
}

// Open connects. It fails if the topics don't match their format record.
func Open(ctx context.Context, cfg kafka.Config, c Config) (*Instance, error) {
	clock := brokerclock.NewClock()
	if c.Seams.Now != nil {
		clock = brokerclock.NewClockWith(c.Seams.Now)
	}
	n := &Instance{Kafka: cfg, DataDir: c.DataDir, Clock: clock, config: c, metrics: c.Metrics, log: c.Log}
	if !c.OwnClock {
		n.Kafka.Clock = clock
	}
	n.Kafka.Hooks = append(n.Kafka.Hooks, c.Metrics.hooks()...)
	c.Metrics.clock.Store(clock)
	n.Name = processName(c.Name)
	var err error
	if n.Admin, err = kafkaadmin.Open(n.Kafka); err != nil {
		return nil, err
	}
	if err := CheckReachable(ctx, n.Admin); err != nil {
		n.Admin.Close()
		return nil, err
	}
	if err := n.checkFormat(ctx); err != nil {
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

// checkFormat checks the topics and sets what they say: Partitions and ClusterID.
func (n *Instance) checkFormat(ctx context.Context) error {
	format, err := n.Admin.CheckFormat(ctx)
	if err != nil {
		return err
	}
	n.Partitions = format.Partitions
	n.ClusterID, err = n.Admin.ClusterID(ctx)
	return err
}

// processName returns the configured name, or else one that is unique.
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

// Run calls start, which starts the roles, and waits until one of them fails (its error) or ctx ends (nil).
func (n *Instance) Run(ctx context.Context, start func(ctx context.Context) error) error {
	g, roles := errgroup.WithContext(ctx)
	n.roles = g
	if n.metrics != nil {
		defer context.AfterFunc(roles, n.metrics.health.markStopping)()
	}
	g.Go(func() error {
		err := start(roles)
		if err == nil && n.metrics != nil {
			n.metrics.health.markStarted()
		}
		if ctx.Err() != nil {
			return ctx.Err() // start was cancelled and may return any error
		}
		return err
	})
	err := g.Wait()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = nil
	}
	return err
}

// DrainContext returns a context that ends some time after ctx. From the end of ctx on the instance isn't ready.
// Servers under the returned context keep answering until load balancers have noticed. If nobody probes readiness,
// it ends at once.
func (n *Instance) DrainContext(ctx context.Context) (context.Context, context.CancelFunc) {
	drained, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		n.metrics.health.markStopping()
		n.metrics.health.drain()
		cancel()
	})
	return drained, func() {
		stop()
		cancel()
	}
}

// Go runs fn as a part of the instance. It is called within Run. An error of fn stops the roles.
func (n *Instance) Go(fn func() error) { n.roles.Go(fn) }

// CountDenied counts a request to a console with an invalid token.
func (n *Instance) CountDenied() { n.metrics.consoleDenied.Inc() }

// Health answers probes about the instance.
func (n *Instance) Health() http.Handler { return n.metrics.health }

// Logger returns the log of the instance.
func (n *Instance) Logger() *slog.Logger { return n.log }

// Close releases everything. The instance may not be used afterwards.
func (n *Instance) Close() {
	if n.catalog != nil {
		n.catalog.watch.Close()
	}
	n.Producer.Close()
	n.Admin.Close()
	n.removeTemporary()
}

func (n *Instance) removeTemporary() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.temporary != "" {
		_ = os.RemoveAll(n.temporary) // if this fails, the system cleans its temporary folder
	}
}

// followDefinitions starts to follow the definitions, unless they are followed already, and returns once they are
// read. It is called within Run, which ends if they can't be followed any more.
func (n *Instance) followDefinitions(ctx context.Context) error {
	if n.catalog != nil {
		return n.catalog.ReadToEndNow(ctx)
	}
	c := &scheduler.CompiledDefinitions{Rejected: func(key string, err error) { n.reportRejectedDefinition(ctx, key, err) },
		Deleted: func(d *workflow.Definition) {
			if n.keepsDeleted.Load() {
				n.keepDefinition(ctx, d)
			}
		}}
	watch, err := logreader.WatchDefinitions(ctx, n.Kafka, func(r events.Record) {
		c.Apply(&r)
		n.definitionsChanged.Store(new(time.Now()))
	})
	if err != nil {
		return err
	}
	n.catalog = &catalog{c, watch}
	n.roles.Go(func() error {
		select {
		case <-ctx.Done():
		case <-watch.Done():
			if err := watch.Err(); err != nil { // later definitions would be missed
				return fmt.Errorf("follow the workflow definitions: %w", err)
			}
		}
		return nil
	})
	return watch.ReadToEndNow(ctx)
}

// reportRejectedDefinition logs a definition that doesn't compile and writes an alert. The definition is ignored.
func (n *Instance) reportRejectedDefinition(ctx context.Context, key string, err error) {
	n.log.Warn("definition doesn't compile and is ignored; fix it and apply it again", "key", key, "error", err)
	a := &events.Alert{Code: "bad_definition", Message: fmt.Sprintf("definition %s is ignored: %v", key, err), At: events.Millis(n.Clock.Now())}
	n.Producer.SendAsync(ctx, a.Record(n.Kafka.Namespace, n.source("scheduler"), "definition/"+key+"/"+n.Name), func(_ events.Record, err error) {
		if err != nil {
			n.log.Error("alert not written", "error", err)
		}
	})
}

// keepDeletedDefinitions writes copies of deleted definitions under keys of their own, now and in future. Their
// tasks still need them after the topic is compacted.
func (n *Instance) keepDeletedDefinitions(ctx context.Context) {
	if n.keepsDeleted.Swap(true) {
		return
	}
	for _, d := range n.catalog.DeletedWithoutCopy() {
		n.keepDefinition(ctx, d)
	}
}

func (n *Instance) keepDefinition(ctx context.Context, d *workflow.Definition) {
	n.log.Warn("definition was deleted; its open tasks keep using it, new submissions are refused", "key", d.Key())
	key := events.KeptDefinition(d.Key())
	r := events.Record{Topic: n.Kafka.Namespace.Definitions(), Partition: -1, Key: []byte(key), Value: d.Stored(),
		Headers: events.CloudHeaders(events.TypeDefinition, n.source("scheduler"), key)}
	n.Producer.SendAsync(ctx, r, func(_ events.Record, err error) {
		if err != nil && ctx.Err() == nil {
			n.log.Error("copy of a deleted definition not written; apply the definition again, or its open tasks lose it when the topic is compacted", "key", d.Key(), "error", err)
		}
	})
}

func (n *Instance) source(role string) string {
	return string(n.Kafka.Namespace) + role + "/" + n.Name
}

// memberID returns the group instance id of a role; empty: a dynamic member.
func (n *Instance) memberID(role string) string {
	if n.config.Name == "" {
		return ""
	}
	return string(n.Kafka.Namespace) + role + "." + n.config.Name
}

// leaveOnStop is for members that may be reopened while the roles run: they leave only when ctx, that of the
// roles, has ended.
func (n *Instance) leaveOnStop(ctx context.Context) func() bool {
	return func() bool { return n.config.LeaveOnStop && ctx.Err() != nil }
}

// leaveOnClose is for members that close only when they stop or can't work: other members take over at once.
func (n *Instance) leaveOnClose() bool { return n.config.LeaveOnStop }

// openStore opens the projection store of a role. It is flushed and closed when the roles end.
func (n *Instance) openStore(ctx context.Context, view string) (*projections.Store, error) {
	dir, err := n.storeDir()
	if err != nil {
		return nil, err
	}
	id := projections.Identity{ClusterID: n.ClusterID, Namespace: n.Kafka.Namespace, Partitions: n.Partitions, View: view}
	var s *projections.Store
	s, err = projections.Open(filepath.Join(dir, view), id, projections.Options{FS: n.config.Seams.FS, HotBytes: n.config.HotBytes, Snapshots: n.config.Snapshots, Fatal: n.endProcess, Listener: &projections.Listener{
		Flushed: func(time.Duration) { n.measureDisk(s, view) },
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
	n.measureDisk(s, view)
	n.roles.Go(func() error {
		s.Run(ctx)
		return nil
	})
	return s, nil
}

func (n *Instance) measureDisk(s *projections.Store, view string) {
	if free, ok := s.FreeSpace(); ok && n.metrics != nil {
		n.metrics.diskFree.WithLabelValues(view).Set(free)
	}
}

// endProcess ends the process because a disk failed. Nothing else of it may run: a decision could be made, or a
// transaction committed, on a store that is wrong.
func (n *Instance) endProcess(err error) {
	n.removeTemporary()
	if n.config.EndProcess != nil {
		n.config.EndProcess(err)
	}
	panic(err)
}

// storeDir returns the folder of the stores. It creates a temporary one if none is configured.
func (n *Instance) storeDir() (string, error) {
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

// Stores returns the stores of the roles that were started, for measurements. A store is closed when its role
// ends.
func (n *Instance) Stores() []*projections.Store {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.stores)
}
