package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
)

const (
	// quietShare is one period in so many without faults.
	quietShare = 4
	// A period has so many kinds of faults at once.
	kindsMin, kindsMax = 2, 5
	// recoverMax bounds the end of all faults: brokers start, processes join.
	recoverMax = 2 * time.Minute
)

// mixOptions say what a run is made of.
type mixOptions struct {
	broker   string
	seed     uint64
	duration time.Duration // of load and faults
	period   time.Duration
	rate     int      // tasks a second
	tasks    int      // at most; 0: no bound
	faults   []string // the kinds to draw from; none: all
}

// mix is one run: brokers, processes, load, and what happens to them.
type mix struct {
	mixOptions
	t        *testing.T
	ns       events.Namespace
	site     *cluster
	service  *faultyService
	platform *platform
	seen     *observer
	load     *load
	meddlers *strayWriters
	pulse    *brokerProbe
	began    time.Time
	disk     string // the file that fills the disks

	brokers sync.Mutex // held by whoever does something to a broker

	mu           sync.Mutex
	rng          *rand.Rand
	history      []action
	counts       map[string]int
	kills        []time.Time // of the embedded broker
	delayPeriods []period    // of held bytes
}

// action is a line of what was done, or came of it.
type action struct {
	at   time.Time
	what string
}

// period is a time in which something that was sent may have been held back; to is
// zero while it lasts.
type period struct{ from, to time.Time }

func openMix(t *testing.T, o mixOptions) *mix {
	t.Helper()
	dir := t.TempDir()
	m := &mix{mixOptions: o, t: t, ns: "chaos.", site: openCluster(t, o.broker), began: time.Now(), disk: filepath.Join(dir, "disk-is-full"),
		rng: rand.New(rand.NewPCG(o.seed, 0)), counts: map[string]int{}}
	m.service = openService(t, filepath.Join(dir, "ledger.jsonl"))
	ctx, cancel := context.WithTimeout(t.Context(), recoverMax)
	defer cancel()
	prepare(ctx, t, m.site.config(m.ns))
	m.pulse = startBrokerProbe(t, m.site.proxiedConfig(m.ns), "pulse")
	m.seen = observe(t, m.site.proxiedConfig(m.ns), m.service.world, checks(m.ns, m.drainWithin(), m.exempt))
	m.platform = newPlatform(t.TempDir(), m.roles(dir), m.logEvent)
	var err error
	if m.load, err = openLoad(m.site.config(m.ns), m.seen, o.seed, o.rate, o.tasks); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.load.producer.Close)
	if m.meddlers, err = openStrayWriters(m.site.config(m.ns), m.load, o.seed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.meddlers.producer.Close)
	t.Cleanup(m.platform.killAll)
	return m
}

// role is what every role's process of the run has.
func (m *mix) role(kind, name, dir string) childSpec {
	return childSpec{Kind: kind, Name: name, Brokers: addresses(m.site.doors), Namespace: m.ns, DataDir: filepath.Join(dir, name),
		OwnClock: m.broker == embeddedBroker, Session: mixSession, Transaction: mixTransaction, Workers: 2, FullDisk: m.disk}
}

// roles are two of each that there may be several of; the first has a name that
// keeps its partitions.
func (m *mix) roles(dir string) []childSpec {
	var all []childSpec
	for _, kind := range []string{schedulerChild, supervisorChild} {
		one, two := m.role(kind, kind+"-1", dir), m.role(kind, kind+"-2", dir)
		one.Instance = "one"
		all = append(all, one, two)
	}
	all = append(all, m.role(indexChild, "index-1", dir))
	for i, name := range demo.Services {
		for n := range 2 - i/2 { // the last has one
			s := m.role(agentChild, fmt.Sprintf("%s-%d", name, n+1), "")
			s.Agent, s.Service, s.DataDir = name, m.service.url(name), ""
			all = append(all, s)
		}
	}
	return all
}

// logEvent keeps what happened, for whoever looks for the cause.
func (m *mix) logEvent(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history = append(m.history, action{time.Now(), fmt.Sprintf(format, args...)})
}

// recordAction is note, and counts.
func (m *mix) recordAction(kind, format string, args ...any) {
	m.logEvent(format, args...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[kind]++
}

// historyText returns all logged events of the run.
func (m *mix) historyText() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	for _, h := range m.history {
		fmt.Fprintf(&b, "%8.3f %s %s\n", h.at.Sub(m.began).Seconds(), h.at.UTC().Format(events.TimeLayout), h.what)
	}
	return b.String()
}

// Chance. The seed makes the plan; how the machine goes about it is its own.
func (m *mix) intn(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

func (m *mix) between(least, most time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return least + time.Duration(m.rng.Int64N(int64(most-least)+1))
}

// sleep reports whether the period still lasts.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// run is the load and the faults, and then their end; it returns when all
// faults are off and everything runs.
func (m *mix) run(ctx context.Context) (quiet time.Time) {
	m.t.Helper()
	keeping, stopKeeping := context.WithCancel(ctx)
	m.t.Cleanup(stopKeeping)
	go m.platform.superviseSlots(keeping)
	m.await(ctx, "the roles run", m.platform.running)
	storm, calm := context.WithTimeout(ctx, m.duration)
	defer calm()
	var all sync.WaitGroup
	all.Go(func() { m.load.run(storm) })
	all.Go(func() { m.meddlers.run(storm) })
	// The first tasks end before the first fault.
	for n := 0; sleep(storm, m.period/10) && storm.Err() == nil; n++ {
		m.runPeriod(storm, n)
	}
	all.Wait()
	m.endAllFaults(ctx)
	return time.Now()
}

// runPeriod is one period.
func (m *mix) runPeriod(storm context.Context, n int) {
	ctx, cancel := context.WithTimeout(storm, m.period)
	defer cancel()
	if m.intn(quietShare) == 0 && n > 0 {
		m.recordAction("quiet periods", "period %d: quiet", n)
		m.t.Logf("%s: period %d: quiet; %d tasks are open", time.Since(m.began).Round(time.Second), n, m.load.open())
		<-ctx.Done()
		return
	}
	kinds := m.drawFaults()
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	m.recordAction("periods with faults", "period %d: %s", n, strings.Join(names, ", "))
	m.t.Logf("%s: period %d: %s; %d tasks are open", time.Since(m.began).Round(time.Second), n, strings.Join(names, ", "), m.load.open())
	var all sync.WaitGroup
	for _, k := range kinds {
		all.Go(func() { k.do(m, ctx) })
	}
	all.Wait()
}

// drawFaults chooses kinds of faults, none twice.
func (m *mix) drawFaults() []faultKind {
	var fit []faultKind
	for _, k := range faultKinds {
		// What is asked for by name is done, fit or not.
		if m.faults == nil && (k.fits == nil || k.fits(m.site)) || slices.Contains(m.faults, k.name) {
			fit = append(fit, k)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rng.Shuffle(len(fit), func(i, j int) { fit[i], fit[j] = fit[j], fit[i] })
	return fit[:min(len(fit), kindsMin+m.rng.IntN(kindsMax-kindsMin+1))]
}

// endAllFaults takes all faults away: each has taken back its own when its period was
// over, and this waits for what comes back.
func (m *mix) endAllFaults(ctx context.Context) {
	m.t.Helper()
	m.t.Logf("%s: the end of the faults", time.Since(m.began).Round(time.Second))
	m.site.clearWeather()
	m.service.setFaultRate(0)
	m.service.world.Repair()
	m.await(ctx, "the brokers run", func(ctx context.Context) error {
		for i := range m.site.count {
			if err := m.site.nodes.Restart(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
	for _, s := range m.platform.slots {
		s.mu.Lock()
		s.thaw() // one that stopped at a point after all
		s.mu.Unlock()
	}
	m.await(ctx, "the roles run", m.platform.running)
	m.await(ctx, "everything is acknowledged", func(ctx context.Context) error {
		for m.load.waiting.Load() > 0 {
			if !sleep(ctx, 10*time.Millisecond) {
				return fmt.Errorf("%d submissions aren't", m.load.waiting.Load())
			}
		}
		return nil
	})
	m.logEvent("all faults are off")
	m.t.Logf("%s: all faults are off; %d tasks are open", time.Since(m.began).Round(time.Second), m.load.open())
}

func (m *mix) await(ctx context.Context, what string, do func(context.Context) error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, recoverMax)
	defer cancel()
	if err := do(ctx); err != nil {
		m.t.Fatalf("%s: %v\n%s", what, err, m.historyText())
	}
}
