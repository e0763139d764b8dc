package chaos

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/waybill-run/waybill/internal/chaos/point"
	"github.com/waybill-run/waybill/internal/demo"
)

// faultKind is a kind of fault. do injects it at random moments until ctx ends. It ends the fault before it returns.
type faultKind struct {
	name string
	fits func(*cluster) bool // nil: all clusters
	do   func(m *mix, ctx context.Context)
}

func severalNodes(s *cluster) bool { return s.count > 1 }

// survivesBrokerKill reports whether nodes may be killed. A single node of Apache Kafka (4.3.1) loses the markers of
// transactions that end while it is stopped or restarted; see settle. After SIGTERM it continues to serve requests
// although no partition has a leader.
func survivesBrokerKill(s *cluster) bool { return s.kind != oneKafka }

var faultKinds = []faultKind{
	{"kills", nil, (*mix).killSome},
	{"stops", nil, (*mix).stopSome},
	{"kills at points", nil, func(m *mix, ctx context.Context) { m.atPoints(ctx, "die") }},
	{"stops at points", nil, func(m *mix, ctx context.Context) { m.atPoints(ctx, "stop") }},
	{"all killed", nil, (*mix).killEverything},
	{"an agent away", nil, (*mix).stopAgents},
	{"churn", nil, (*mix).churn},
	{"duplicates", nil, (*mix).startDuplicates},
	{"state lost", nil, (*mix).deleteState},
	{"disk full", nil, (*mix).fillDisk},
	{"sick services", nil, (*mix).makeServicesFail},
	{"brokers killed", nil, (*mix).killBrokers},
	{"brokers stopped", nil, (*mix).stopBrokers},
	{"brokers restarted", survivesBrokerKill, (*mix).restartBrokers},
	{"cuts", nil, (*mix).cut},
	{"black holes", nil, (*mix).hold},
	{"latency", nil, (*mix).slow},
	{"broken frames", nil, (*mix).snap},
	{"cuts between brokers", severalNodes, (*mix).cutBetween},
}

// takeRandomSlot locks a random free slot. It returns nil if there is none.
func (m *mix) takeRandomSlot(fits func(*slot) bool) *slot {
	for range 10 {
		s := m.platform.slots[m.intn(len(m.platform.slots))]
		if fits != nil && !fits(s) || !s.mu.TryLock() {
			continue
		}
		if s.p != nil {
			return s
		}
		s.mu.Unlock()
	}
	return nil
}

func (m *mix) killSome(ctx context.Context) {
	for sleep(ctx, m.between(time.Second, 6*time.Second)) {
		if s := m.takeRandomSlot(nil); s != nil {
			s.kill(false)
			m.recordAction("kills of a "+s.spec.Kind, "kill %s", s.spec.Name)
			s.mu.Unlock()
		}
	}
}

// stopSome stops processes for longer than their session, and some for longer than their transaction timeout.
func (m *mix) stopSome(ctx context.Context) {
	for sleep(ctx, m.between(time.Second, 4*time.Second)) {
		s := m.takeRandomSlot(nil)
		if s == nil {
			continue
		}
		if s.freeze() {
			over, d := m.beginDelayPeriod(), m.between(mixSession/2, mixSession+mixTransaction)
			m.recordAction("stops of a "+s.spec.Kind, "stop %s for %s", s.spec.Name, d.Round(time.Millisecond))
			sleep(ctx, d)
			s.thaw()
			m.logEvent("%s goes on", s.spec.Name)
			over()
		}
		s.mu.Unlock()
	}
}

// beginDelayPeriod begins a period in which the network or a recovering broker may delay records. over ends it.
func (m *mix) beginDelayPeriod() (over func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := len(m.delayPeriods)
	m.delayPeriods = append(m.delayPeriods, period{from: time.Now()})
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.delayPeriods[i].to = time.Now()
	}
}

// mayBeDelayed reports whether a record with this timestamp may have been sent long before.
func (m *mix) mayBeDelayed(at time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(m.delayPeriods) - 1; i >= 0; i-- {
		s := &m.delayPeriods[i]
		if at.After(s.from) && (s.to.IsZero() || at.Before(s.to.Add(delayAfter))) {
			return true
		}
	}
	return false
}

// pointsOf maps each role to the points that it passes.
var pointsOf = map[string][]point.Point{schedulerChild: point.OfScheduler, supervisorChild: point.OfSupervisor, agentChild: point.OfAgent}

// pointWithin bounds the wait for a point. Without traffic the point isn't passed.
const pointWithin = 5 * time.Second

// neverPass cancels an order. orderMax bounds the time until a process obeys.
const (
	neverPass = 1 << 30
	orderMax  = 300 * time.Millisecond
)

// atPoints kills or stops processes at named points.
func (m *mix) atPoints(ctx context.Context, what string) {
	for sleep(ctx, m.between(500*time.Millisecond, 3*time.Second)) {
		s := m.takeRandomSlot(func(s *slot) bool { return pointsOf[s.spec.Kind] != nil })
		if s == nil {
			continue
		}
		of := pointsOf[s.spec.Kind]
		at, n := of[m.intn(len(of))], 1+m.intn(20)
		p := s.p
		// Wait until it is ready, because its earlier output is no longer read.
		if p.hasSaidReady() && s.order(what, at, n) {
			if _, err := p.next("at "+string(at), pointWithin); err == nil {
				m.passed(ctx, s, what, at, n)
			} else { // the point isn't passed without traffic
				s.order(what, at, neverPass)
				sleep(ctx, orderMax)
				s.thaw()
			}
		}
		s.mu.Unlock()
	}
}

// passed handles a process that is stopped or dead at the point.
func (m *mix) passed(ctx context.Context, s *slot, what string, at point.Point, n int) {
	kind := fmt.Sprintf("%ss at %s", map[string]string{"die": "kill", "stop": "stop"}[what], at)
	m.recordAction(kind, "%s: %s at pass %d of %s", s.spec.Name, what, n, at)
	if what == "die" {
		s.ours = true
		<-s.p.ended
		return
	}
	over := m.beginDelayPeriod()
	if s.p.stoppedWithin(slotStopMax) != nil {
		m.logEvent("%s did not stop", s.spec.Name)
	}
	sleep(ctx, m.between(mixSession/2, mixSession+mixTransaction))
	s.thaw()
	m.logEvent("%s goes on", s.spec.Name)
	over()
}

// killEverything kills all roles at once, with or without the broker.
func (m *mix) killEverything(ctx context.Context) {
	if !sleep(ctx, m.between(0, m.period/2)) {
		return
	}
	withBroker := m.intn(2) == 0
	var held []*slot
	if withBroker {
		m.brokers.Lock()
		defer m.brokers.Unlock()
		defer m.beginDelayPeriod()()
		var release func()
		if withBroker, held, release = m.settle(ctx); withBroker {
			defer release()
		}
	}
	m.recordAction("kills of everything", "kill everything; with the brokers: %v", withBroker)
	var all sync.WaitGroup
	for _, s := range m.platform.slots {
		if slices.Contains(held, s) {
			continue // already killed
		}
		all.Go(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.kill(false)
		})
	}
	if withBroker {
		for i := range m.site.count {
			all.Go(func() { m.killBroker(i) })
		}
	}
	all.Wait()
	if withBroker {
		for i := range m.site.count {
			all.Go(func() { m.startBroker(i) })
		}
		all.Wait()
	}
}

// stopAgents stops all processes of an agent for a while.
func (m *mix) stopAgents(ctx context.Context) {
	for sleep(ctx, m.between(time.Second, 5*time.Second)) {
		name := demo.ServiceNames[m.intn(len(demo.ServiceNames))]
		var away []*slot
		for _, s := range m.platform.slots {
			if s.spec.Agent == name {
				s.mu.Lock()
				s.kill(true)
				away = append(away, s)
			}
		}
		m.recordAction("agents away", "no %s", name)
		sleep(ctx, m.between(mixSession, 3*mixSession))
		for _, s := range away {
			s.down = false
			s.mu.Unlock()
		}
		m.logEvent("%s may come back", name)
	}
}

// churn lets members join and leave every 1 to 3 s.
func (m *mix) churn(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		spec := m.platform.slots[m.intn(len(m.platform.slots))].spec
		spec.Instance, spec.Name = "", fmt.Sprintf("%s-guest-%d", spec.Kind, n)
		if spec.DataDir != "" {
			spec.DataDir += "-" + spec.Name
		}
		p, err := m.platform.startExtra(spec)
		if err != nil {
			m.logEvent("start %s: %v", spec.Name, err)
			return
		}
		sleep(ctx, m.between(time.Second, 3*time.Second))
		if m.intn(2) == 0 {
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			select {
			case <-p.ended:
			case <-time.After(m.between(500*time.Millisecond, 3*time.Second)):
			}
		}
		m.platform.removeExtra(p)
		m.recordAction("members that came and left", "%s came and left", spec.Name)
		sleep(ctx, m.between(0, time.Second))
	}
}

// startDuplicates starts a second process with the instance id of a running one.
func (m *mix) startDuplicates(ctx context.Context) {
	for n := 0; sleep(ctx, m.between(time.Second, 3*time.Second)); n++ {
		var spec childSpec
		for spec.Instance == "" {
			spec = m.platform.slots[m.intn(len(m.platform.slots))].spec
		}
		spec.Name = fmt.Sprintf("%s-duplicate-%d", spec.Kind, n)
		spec.DataDir += "-" + spec.Name
		p, err := m.platform.startExtra(spec)
		if err != nil {
			m.logEvent("start %s: %v", spec.Name, err)
			return
		}
		m.recordAction("duplicates", "%s has the instance id %q of another", spec.Name, spec.Instance)
		sleep(ctx, m.between(2*time.Second, 6*time.Second))
		m.platform.removeExtra(p)
		m.logEvent("%s has gone", spec.Name)
	}
}

// deleteState deletes the state of a killed role.
func (m *mix) deleteState(ctx context.Context) {
	for sleep(ctx, m.between(2*time.Second, 6*time.Second)) {
		s := m.takeRandomSlot(func(s *slot) bool { return s.spec.DataDir != "" })
		if s == nil {
			continue
		}
		s.kill(false)
		if err := clearState(s.spec.DataDir); err != nil {
			m.t.Errorf("delete the state of %s: %v", s.spec.Name, err)
		}
		m.recordAction("states lost", "%s was killed and has lost its state", s.spec.Name)
		s.mu.Unlock()
	}
}

// fillDisk makes the disk of the stores full for a while.
func (m *mix) fillDisk(ctx context.Context) {
	for sleep(ctx, m.between(time.Second, 5*time.Second)) {
		if err := os.WriteFile(m.disk, nil, 0o644); err != nil {
			m.t.Error(err)
		}
		m.recordAction("full disks", "the disk is full")
		sleep(ctx, m.between(time.Second, 5*time.Second))
		if err := os.Remove(m.disk); err != nil {
			m.t.Error(err)
		}
		m.logEvent("the disk has room")
	}
}

func (m *mix) makeServicesFail(ctx context.Context) {
	share := int64(20 + m.intn(400))
	m.recordAction("sick delayPeriods", "%d of 1,000 calls go wrong", share)
	m.service.setFaultRate(share)
	<-ctx.Done()
	m.service.setFaultRate(0)
}

// killBroker kills one node. The caller holds m.brokers.
func (m *mix) killBroker(i int) {
	if err := m.site.nodes.Kill(i); err != nil {
		m.t.Errorf("kill broker %d: %v", i, err)
	}
	m.recordAction("kills of a broker", "kill broker %d", i)
	if m.broker == embeddedBroker {
		m.mu.Lock()
		m.kills = append(m.kills, time.Now())
		m.mu.Unlock()
	}
}

func (m *mix) startBroker(i int) {
	if err := m.site.nodes.Restart(context.Background(), i); err != nil {
		m.t.Errorf("start broker %d: %v", i, err)
	}
	m.logEvent("broker %d is back", i)
}

// killBrokers kills a node. It never kills two of three nodes, because then no write would succeed.
func (m *mix) killBrokers(ctx context.Context) {
	for sleep(ctx, m.between(0, m.period/2)) {
		m.brokers.Lock()
		over, i := m.beginDelayPeriod(), m.intn(m.site.count)
		if ok, _, release := m.settle(ctx); ok {
			m.killBroker(i)
			sleep(ctx, m.between(0, 3*time.Second))
			m.startBroker(i)
			release()
		}
		over()
		m.brokers.Unlock()
		if !sleep(ctx, m.period/3) {
			return
		}
	}
}

func (m *mix) stopBrokers(ctx context.Context) {
	for sleep(ctx, m.between(0, m.period/3)) {
		m.brokers.Lock()
		over, i, d := m.beginDelayPeriod(), m.intn(m.site.count), m.between(500*time.Millisecond, 2*mixSession)
		if err := m.site.nodes.Pause(i); err != nil {
			m.t.Errorf("stop broker %d: %v", i, err)
		}
		m.recordAction("stops of a broker", "stop broker %d for %s", i, d.Round(time.Millisecond))
		sleep(ctx, d)
		if err := m.site.nodes.Continue(i); err != nil {
			m.t.Errorf("continue broker %d: %v", i, err)
		}
		m.logEvent("broker %d goes on", i)
		over()
		m.brokers.Unlock()
	}
}

func (m *mix) restartBrokers(ctx context.Context) {
	if !sleep(ctx, m.between(0, m.period/2)) {
		return
	}
	for i := range m.site.count {
		m.brokers.Lock()
		over := m.beginDelayPeriod()
		if err := m.site.nodes.Terminate(i); err != nil {
			m.t.Errorf("end broker %d: %v", i, err)
		}
		m.recordAction("restarts of a broker", "restart broker %d", i)
		m.startBroker(i)
		over()
		m.brokers.Unlock()
		if ctx.Err() != nil {
			return
		}
	}
}

// weather applies a network fault to a proxy for a while.
func (m *mix) weather(ctx context.Context, p *Proxy, where string, w Weather, d time.Duration) {
	defer m.beginDelayPeriod()()
	p.Set(w)
	m.recordAction("delayPeriods of weather", "%s: %s for %s", where, w, d.Round(time.Millisecond))
	sleep(ctx, d)
	p.Set(Weather{})
	m.logEvent("%s: fair", where)
}

func (m *mix) randomProxy() (*Proxy, string) {
	i := m.intn(m.site.count)
	return m.site.doors[i], fmt.Sprintf("broker %d", i)
}

// randomShare returns the share of the connections that a fault affects; 0: all.
func (m *mix) randomShare() float64 { return []float64{0, 0.3, 0.6}[m.intn(3)] }

func (m *mix) cut(ctx context.Context) {
	for sleep(ctx, m.between(500*time.Millisecond, 4*time.Second)) {
		p, where := m.randomProxy()
		m.weather(ctx, p, where, Weather{Cut: true, Share: m.randomShare()}, m.between(200*time.Millisecond, 2*mixSession))
	}
}

// hold delays all data for a while, in one or both directions.
func (m *mix) hold(ctx context.Context) {
	for sleep(ctx, m.between(500*time.Millisecond, 4*time.Second)) {
		p, where := m.randomProxy()
		w := Weather{Share: m.randomShare()}
		ways := 1 + m.intn(3) // a bit set
		w.Hold[ToBroker], w.Hold[ToClient] = ways&1 != 0, ways&2 != 0
		m.weather(ctx, p, where, w, m.between(500*time.Millisecond, mixSession+mixTransaction))
	}
}

func (m *mix) slow(ctx context.Context) {
	for sleep(ctx, m.between(0, 2*time.Second)) {
		p, where := m.randomProxy()
		m.weather(ctx, p, where, Weather{Delay: m.between(2*time.Millisecond, 60*time.Millisecond), Share: m.randomShare()}, m.between(time.Second, m.period/2+time.Second))
	}
}

func (m *mix) snap(ctx context.Context) {
	for sleep(ctx, m.between(200*time.Millisecond, 3*time.Second)) {
		p, where := m.randomProxy()
		d := Direction(m.intn(int(directions)))
		n := p.Snap(d)
		m.recordAction("broken frames", "%s: %d connections break in the middle of a frame %s", where, n, d)
	}
}

// cutBetween disconnects a node from the other nodes, but not from clients.
func (m *mix) cutBetween(ctx context.Context) {
	for len(m.site.between) > 0 && sleep(ctx, m.between(500*time.Millisecond, 4*time.Second)) {
		i := m.intn(len(m.site.between))
		w := Weather{Cut: true}
		if m.intn(2) == 0 {
			w = Weather{}
			w.Hold[ToBroker] = true
			w.Hold[ToClient] = m.intn(2) == 0
		}
		m.weather(ctx, m.site.between[i], fmt.Sprintf("between broker %d and the others", i), w, m.between(time.Second, 2*mixSession))
	}
}

// delayAfter is how long after a delay period replies may still be late because of it.
const delayAfter = 2 * time.Second
