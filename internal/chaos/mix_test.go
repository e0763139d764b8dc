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
	"github.com/waybill-run/waybill/internal/suite"
)

const (
	// quietShare is n: one in n periods has no faults.
	quietShare = 4
	// The bounds of the number of kinds of faults in a period.
	kindsMin, kindsMax = 2, 5
)

// mixOptions configure a run.
type mixOptions struct {
	broker   string
	seed     uint64
	duration time.Duration // of load and faults
	period   time.Duration
	rate     int      // tasks per second
	tasks    int      // the maximum; 0: no bound
	faults   []string // the kinds to draw from; empty: all
}

// mix is one run: brokers, processes, load and faults.
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
	disk     string // the file that makes the disks full

	brokers sync.Mutex // held during an action on a broker

	mu           sync.Mutex
	rng          *rand.Rand
	history      []action
	counts       map[string]int
	kills        []time.Time // of the embedded broker
	delayPeriods []period    // when bytes were delayed
}

// action is one entry of the run's history.
type action struct {
	at   time.Time
	what string
}

// period is a time range in which records may have been delayed. to is zero until it ends.
type period struct{ from, to time.Time }

func openMix(t *testing.T, o mixOptions) *mix {
	t.Helper()
	dir := t.TempDir()
	m := &mix{mixOptions: o, t: t, ns: "chaos.", site: openCluster(t, o.broker), began: time.Now(), disk: filepath.Join(dir, "disk-is-full"),
		rng: rand.New(rand.NewPCG(o.seed, 0)), counts: map[string]int{}}
	m.service = openService(t, filepath.Join(dir, "ledger.jsonl"))
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	prepare(ctx, t, m.site.config(m.ns))
	m.pulse = startBrokerProbe(t, m.site.proxiedConfig(m.ns), "pulse")
	m.seen = observe(t, m.site.proxiedConfig(m.ns), m.service.services, checks(m.ns, m.drainWithin(), m.exempt))
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

// role returns the common part of the spec of a role's process.
func (m *mix) role(kind, name, dir string) childSpec {
	return childSpec{Kind: kind, Name: name, Brokers: addresses(m.site.doors), Namespace: m.ns, DataDir: filepath.Join(dir, name),
		OwnClock: m.broker == embeddedBroker, Session: mixSession, Transaction: mixTransaction, Workers: 2, FullDisk: m.disk}
}

// roles returns two processes of each role that can have several. The first of each is a static member, which keeps its
// partitions.
func (m *mix) roles(dir string) []childSpec {
	var all []childSpec
	for _, kind := range []string{schedulerChild, supervisorChild} {
		one, two := m.role(kind, kind+"-1", dir), m.role(kind, kind+"-2", dir)
		one.Instance = "one"
		all = append(all, one, two)
	}
	all = append(all, m.role(indexChild, "index-1", dir))
	for i, name := range demo.ServiceNames {
		for n := range 2 - i/2 { // the last service has one agent process
			s := m.role(agentChild, fmt.Sprintf("%s-%d", name, n+1), "")
			s.Agent, s.Service, s.DataDir = name, m.service.url(name), ""
			all = append(all, s)
		}
	}
	return all
}

// logEvent adds a line to the history of the run.
func (m *mix) logEvent(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history = append(m.history, action{time.Now(), fmt.Sprintf(format, args...)})
}

// recordAction adds a line to the history and counts it by kind.
func (m *mix) recordAction(kind, format string, args ...any) {
	m.logEvent(format, args...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[kind]++
}

// historyText returns the history of the run.
func (m *mix) historyText() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	for _, h := range m.history {
		fmt.Fprintf(&b, "%8.3f %s %s\n", h.at.Sub(m.began).Seconds(), h.at.UTC().Format(events.TimeLayout), h.what)
	}
	return b.String()
}

// intn draws from the seed. The seed determines the planned faults, but not the machine's timing.
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

// sleep sleeps for d and reports whether ctx is not done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// run runs the load and the faults. It returns when all faults are over and all processes run.
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

// runPeriod runs one period.
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

// drawFaults chooses distinct kinds of faults.
func (m *mix) drawFaults() []faultKind {
	var fit []faultKind
	for _, k := range faultKinds {
		// Kinds that are requested by name are used even if they don't fit.
		if m.faults == nil && (k.fits == nil || k.fits(m.site)) || slices.Contains(m.faults, k.name) {
			fit = append(fit, k)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rng.Shuffle(len(fit), func(i, j int) { fit[i], fit[j] = fit[j], fit[i] })
	return fit[:min(len(fit), kindsMin+m.rng.IntN(kindsMax-kindsMin+1))]
}

// endAllFaults ends all faults. Each kind ends its own faults at the end of its period. endAllFaults waits until all
// processes and brokers run again.
func (m *mix) endAllFaults(ctx context.Context) {
	m.t.Helper()
	m.t.Logf("%s: the end of the faults", time.Since(m.began).Round(time.Second))
	m.site.clearWeather()
	m.service.setFaultRate(0)
	m.service.services.Repair()
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
		s.thaw() // one may have stopped at a point meanwhile
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
	ctx, cancel := context.WithTimeout(ctx, suite.Patience)
	defer cancel()
	if err := do(ctx); err != nil {
		m.t.Fatalf("%s: %v\n%s", what, err, m.historyText())
	}
}
