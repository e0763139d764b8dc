//go:build synctests

package sim

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/chaos/point"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/workflow"
)

const (
	partitions         = 4
	requestPartitions  = 3
	brokers            = 3
	firstPort          = 9092
	sessionTimeout     = 4 * time.Second
	transactionTimeout = 8 * time.Second
	fetchMaxWait       = time.Second // most of a seed's cost is waiting
	hotBytes           = 20_000      // a few tasks of each partition; the others are only in Pebble
)

// simulation is the state of one seed.
type simulation struct {
	t        *testing.T
	seed     uint64
	rnd      *rand.Rand
	begin    time.Time
	broker   *kafkatest.Broker
	wires    *wires
	ns       events.Namespace
	services *services
	load     *load
	every    time.Duration // average time between two actions of the load
	procs    []*process
	outcome  outcome
	storms   sync.WaitGroup

	punctual                time.Time // timers that are due later must fire soon
	quiet, drained, settled time.Time
	left                    int64
	lags                    []string // owners of lags
	reflects                int64
	keys                    map[string]string // of the last attempt of each step, by task and step
	often                   projections.SnapshotOptions
	taken                   atomic.Int64 // restores from a snapshot
	agentsDisturbed         bool

	mu    sync.Mutex
	notes []string // events for the report of a failure
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	rnd := rand.New(rand.NewPCG(seed, 0x5eed))
	w := &simulation{t: t, seed: seed, rnd: rnd, begin: time.Now(), ns: events.DefaultNamespace, every: time.Second / 2,
		services: newServices(rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 6)), rand.New(rand.NewPCG(seed, 7))), keys: map[string]string{}, often: drawSnapshots(rand.New(rand.NewPCG(seed, 4)))}
	ports := make([]int, brokers)
	for i := range ports {
		ports[i] = firstPort + i
	}
	w.broker = kafkatest.Virtual(t, kfake.NumBrokers(brokers), kfake.Ports(ports...))
	w.wires = &wires{dialTo: w.broker.Dial, conns: map[string]map[net.Conn]bool{}}
	w.broker.Dial = w.wires.dial
	appendTime(w.broker.Fake)
	return w
}

// note adds a line to the report of a failure.
func (w *simulation) note(who, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, fmt.Sprintf("%10s  %s: %s", time.Since(w.begin).Truncate(time.Millisecond), who, fmt.Sprintf(format, args...)))
	if *live {
		fmt.Fprintln(os.Stderr, w.notes[len(w.notes)-1])
	}
}

// log adds the log lines of a process to the notes.
func (w *simulation) log(who string) *slog.Logger {
	return slog.New(slog.NewTextHandler(&noteWriter{w, who}, &slog.HandlerOptions{Level: slog.LevelInfo,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
}

type noteWriter struct {
	w   *simulation
	who string
}

func (n *noteWriter) Write(b []byte) (int, error) {
	n.w.note(n.who, "%s", bytes.TrimSpace(b))
	return len(b), nil
}

// config returns a configuration that reaches the broker without faults.
func (w *simulation) config(id string) kafka.Config {
	return kafka.Config{Brokers: w.broker.Addrs, Namespace: w.ns, ClientID: id, Dial: w.broker.Dial}
}

// prepare creates topics and definitions, and the client of the load.
func (w *simulation) prepare(ctx context.Context) {
	w.t.Helper()
	admin, err := kafkaadmin.Open(w.config("sim"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer admin.Close()
	topics := kafkaadmin.CreateTopicsOptions{Partitions: partitions, Agents: map[string]int32{}}
	for _, a := range agents {
		topics.Agents[a] = requestPartitions
	}
	if _, err := admin.CreateTopics(ctx, topics); err != nil {
		w.t.Fatal(err)
	}
	producer, err := kafka.OpenProducer(w.config("sim"))
	if err != nil {
		w.t.Fatal(err)
	}
	more := rand.New(rand.NewPCG(w.seed, 5))
	lists := rand.New(rand.NewPCG(w.seed, 32))
	w.load = &load{w: w, rnd: rand.New(rand.NewPCG(w.seed, 2)), more: more, lists: lists, ds: definitions(w.rnd, more, lists), migrations: rand.New(rand.NewPCG(w.seed, 59)), producer: producer, acked: map[string]time.Time{}}
	for _, d := range w.load.ds {
		if err := producer.Send(ctx, definitionRecord(w.ns, d), definitionRecord(w.ns, secondVersion(w.load.migrations, d))); err != nil {
			w.t.Fatal(err)
		}
	}
}

func definitionRecord(ns events.Namespace, d *workflow.Definition) events.Record {
	return events.Record{Topic: ns.Definitions(), Partition: -1, Key: []byte(d.Key()), Value: d.Stored(),
		Headers: events.CloudHeaders(events.TypeDefinition, "sim", d.Key())}
}

// The roles of the processes.
var (
	schedulerRole = role{"scheduler", point.OfScheduler, func(ctx context.Context, w *simulation, n *instance.Instance) error {
		return n.StartScheduler(ctx, instance.SchedulerOptions{Workers: 2, ObserveCapacity: true})
	}}
	supervisorRole = role{"supervisor", point.OfSupervisor, func(ctx context.Context, _ *simulation, n *instance.Instance) error {
		return n.StartSupervisor(ctx, 0)
	}}
	agentsRole = role{"agents", point.OfAgent, func(ctx context.Context, w *simulation, n *instance.Instance) error {
		for _, name := range agents {
			n.StartAgent(ctx, name, 8, agent.Breaker{}, agent.HandlerFunc(w.services.Handle))
		}
		return nil
	}}
)

// populate creates the processes. Some are static members.
func (w *simulation) populate() {
	add := func(r role, n int) {
		for i := range n {
			w.procs = append(w.procs, &process{w: w, name: fmt.Sprintf("%s%d", r.name, i+1), role: r, static: w.rnd.IntN(3) == 0,
				rnd: rand.New(rand.NewPCG(w.seed, w.rnd.Uint64())), disk: vfs.NewCrashableMem()})
		}
	}
	add(schedulerRole, 2)
	add(supervisorRole, 2)
	add(agentsRole, 2)
}

// runSeed runs one seed: all faults, then only those of services, then none, and then the checks.
func runSeed(t *testing.T, seed uint64) outcome {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := newSimulation(t, seed)
	w.prepare(ctx)
	w.populate()
	running, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	for _, p := range w.procs {
		group.Go(func() { p.run(running) })
	}
	loading, enough := context.WithCancel(ctx)
	group.Go(func() { w.load.run(loading) })

	faults := newFaults(w)
	for range 2 * *minutes {
		faults.period(ctx)
	}
	faults.end()
	w.storms.Wait()
	w.calm(ctx)
	enough()
	w.settle(ctx)
	stop()
	for _, p := range w.procs {
		p.mu.Lock()
		p.life.cancel()
		p.mu.Unlock()
	}
	group.Wait()
	for _, p := range w.procs {
		p.until.Wait()
	}
	w.load.producer.Close()
	w.check(ctx)
	w.outcome.simulated = time.Since(w.begin)
	w.outcome.tasks, w.outcome.unreadable, w.outcome.controls = w.load.n, w.load.unreadable, w.load.controls
	w.outcome.signals = w.load.signals
	return w.outcome
}
