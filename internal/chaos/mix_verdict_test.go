package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/projections"
)

const (
	// clusterSettles is how long a cluster takes to be one again after a broker
	// came back: its own session, an election, coordinators that load.
	clusterSettles = 10 * time.Second
	// drainLook is how often the lag is asked for.
	drainLook = 250 * time.Millisecond
	// mixReplyTolerance is how long after complete-by a reply may be written by an
	// agent that nothing disturbs: the clocks of roles are estimates, and the
	// machine is shared.
	mixReplyTolerance = time.Second
	// tornWithin is how close to a kill of the embedded broker a transaction was
	// under way that it tore.
	tornWithin = 2 * time.Second
	// allFaults is more than can show: one torn transaction may break the promises
	// of as many tasks as it had records.
	allFaults = 1_000_000
	// toldMost bounds what is told of what is broken.
	toldMost      = 20
	timelinesMost = 3
	// readWithin bounds the reading of a whole topic.
	readWithin = 10 * time.Minute
)

// drainWithin is how long the backlog may take to drain once all faults are off:
// three times (session timeout + longest wait of the policies). Of three nodes one
// that was killed has a session, too, and must recover its log and load its groups.
// Measured on two cores: 9 to 17 s on the embedded broker and on one node of Kafka,
// 26 to 28 s on three.
func (o *mixOptions) drainWithin() time.Duration {
	wait := mixSession + longestWait
	if o.broker == threeKafkas {
		wait += clusterSettles
	}
	return 3 * wait
}

// checks are what a run is held against.
func checks(ns events.Namespace, drainWithin time.Duration, exempt func(*events.Record) bool) verify.Options {
	return verify.Options{Namespace: ns, Partitions: events.DefaultPartitions, Inputs: true, Ledger: true, Deadletters: true, Alerts: true,
		Requests: true, Faults: allFaults, DrainWithin: drainWithin, ReplyTolerance: mixReplyTolerance, Exempt: exempt}
}

// exempt: what the parrot says, and what may have been on its way for long.
func (m *mix) exempt(reply *events.Record) bool {
	source, _ := reply.Header(events.HeaderSource)
	return source == parrotSource || m.mayBeDelayed(reply.Time) || m.pulse.mayBeDelayed(reply.Time, mixReplyTolerance)
}

// drain waits until every acknowledged task has ended or is held and all groups
// have consumed everything. It returns how long that took.
func (m *mix) drain(ctx context.Context, quiet time.Time) time.Duration {
	m.t.Helper()
	admin, err := kafka.OpenAdmin(m.site.proxiedConfig(m.ns))
	if err != nil {
		m.t.Fatal(err)
	}
	defer admin.Close()
	ids := m.load.acknowledged()
	var open []string
	lag := int64(-1)
	// Past the bound it is waited for on, to tell late from never.
	for time.Since(quiet) < 2*m.drainWithin() {
		if open = m.seen.open(ids, toldMost); len(open) == 0 {
			if lag, err = m.lag(ctx, admin); err != nil {
				m.logEvent("lag: %v", err)
			} else {
				m.seen.mu.Lock()
				m.seen.checker.Lag(time.Now(), lag)
				m.seen.mu.Unlock()
			}
			if lag == 0 {
				return time.Since(quiet)
			}
		}
		sleep(ctx, drainLook)
	}
	m.t.Errorf("%s after the faults were off %d tasks are open, such as %q, and the lag is %d (%v)", time.Since(quiet), len(open), open, lag, m.seen.err)
	for _, id := range open[:min(len(open), timelinesMost)] {
		m.timeline(id)
	}
	return time.Since(quiet)
}

// lag is how many records the groups have not consumed. Their offsets may stay
// below the end where only markers of transactions follow, which are no records.
func (m *mix) lag(ctx context.Context, admin *kafka.Admin) (int64, error) {
	groups := []string{m.ns.SchedulerGroup(), m.ns.SupervisorGroup(), m.ns.NotifierGroup()}
	for _, name := range demo.Services {
		groups = append(groups, m.ns.AgentGroup(name))
	}
	total := int64(0)
	for _, g := range groups {
		lags, err := admin.GroupLag(ctx, g)
		if err != nil {
			return 0, err
		}
		for topic, ps := range lags {
			behind := map[int32]int64{}
			for p, n := range ps {
				if n > 0 {
					behind[p] = n
				}
			}
			n, err := m.unreadRecords(ctx, admin, topic, behind)
			if err != nil {
				return 0, err
			}
			if n > 0 {
				m.logEvent("group %s: %d records of %s", g, n, topic)
			}
			total += n
		}
	}
	return total, nil
}

// unreadRecords counts the records among the last offsets of some partitions.
func (m *mix) unreadRecords(ctx context.Context, admin *kafka.Admin, topic string, behind map[int32]int64) (int64, error) {
	if len(behind) == 0 {
		return 0, nil
	}
	ends, err := admin.EndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	var some []int32
	for p := range behind {
		some = append(some, p)
	}
	count := int64(0)
	err = m.read(ctx, topic, kafka.Range{Partitions: some, Since: m.began}, func(r *events.Record) {
		if r.Offset >= ends[r.Partition]-behind[r.Partition] && r.Offset < ends[r.Partition] {
			count++
		}
	})
	return count, err
}

// read reads a topic past the proxies.
func (m *mix) read(ctx context.Context, topic string, in kafka.Range, fn func(*events.Record)) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	r, err := kafka.OpenRestorer(m.site.proxiedConfig(m.ns), nil)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.ReadAll(ctx, topic, in, func(rs []events.Record) error {
		for i := range rs {
			fn(&rs[i])
		}
		return nil
	}, nil)
	return err
}

// timeline shows the events of a task.
func (m *mix) timeline(id string) {
	m.t.Helper()
	p := events.Partition([]byte(id), events.DefaultPartitions)
	var b strings.Builder
	err := m.read(context.Background(), m.ns.Events(), kafka.Range{Partitions: []int32{p}}, func(r *events.Record) {
		if string(r.Key) == id {
			kind, _ := r.Header(events.HeaderType)
			fmt.Fprintf(&b, "%8.3f %d/%d %s %s\n", r.Time.Sub(m.began).Seconds(), r.Partition, r.Offset, kind, r.Value)
		}
	})
	m.t.Logf("task %s (%v):\n%s", id, err, &b)
}

// checkResults holds everything against what is promised; took is how long it took to drain.
func (m *mix) checkResults(ctx context.Context, quiet time.Time, took time.Duration) *verify.Report {
	m.t.Helper()
	if err := m.platform.endAll(); err != nil {
		m.t.Error(err)
	}
	ledger, err := m.service.close()
	if err != nil {
		m.t.Fatal(err)
	}
	raw := m.rawLog(ctx)
	m.seen.mu.Lock()
	defer m.seen.mu.Unlock()
	c := m.seen.checker
	if raw != m.seen.events {
		m.t.Errorf("the log has %d events; %d were seen as they came", raw, m.seen.events)
	}
	for _, e := range effects(ledger) {
		c.Effect(e)
	}
	for id, at := range m.load.acknowledged() {
		c.Acknowledged(id, at)
	}
	stood := m.pulse.stalledTime(quiet, quiet.Add(took-drainLook)) // before the last look
	m.t.Logf("of the time that it took to drain, the broker stood still for %s", stood.Round(time.Millisecond))
	c.Quiet(quiet.Add(stood)) // that is a fault, too
	m.feed(ctx, c)
	m.compareDigests(ctx, c)
	report := c.Finish(time.Now())
	m.reportFaults(ctx, report)
	c.Tasks(func(t *events.Task) bool {
		if !m.load.isSubmitted(t.ID) {
			m.t.Errorf("garbage became task %q", t.ID)
		}
		return true
	})
	return report
}

// rawLog checks the log once more, as it is now, and returns how many events it
// has.
func (m *mix) rawLog(ctx context.Context) int {
	m.t.Helper()
	log := verify.NewLog()
	if err := m.read(ctx, m.ns.Events(), kafka.Range{}, func(r *events.Record) { log.Add(r) }); err != nil {
		m.t.Fatal(err)
	}
	for _, f := range log.Faults[:min(len(log.Faults), toldMost)] {
		m.t.Errorf("in the log as it is: %s", f)
	}
	return log.Events
}

// feed gives the checkers what the observer doesn't follow.
func (m *mix) feed(ctx context.Context, c *verify.Checker) {
	m.t.Helper()
	topics := map[string]func(*events.Record){m.ns.Deadletters(): c.Deadletter, m.ns.Alerts(): c.Alert}
	for _, name := range demo.Services {
		topics[m.ns.Requests(name)] = c.Request
	}
	for topic, fn := range topics {
		if err := m.read(ctx, topic, kafka.Range{}, fn); err != nil {
			m.t.Fatalf("read %s: %v", topic, err)
		}
	}
	admin, err := kafka.OpenAdmin(m.site.proxiedConfig(m.ns))
	if err != nil {
		m.t.Fatal(err)
	}
	defer admin.Close()
	lags, err := admin.GroupLag(ctx, m.ns.SchedulerGroup())
	if err != nil {
		m.t.Fatal(err)
	}
	for inbox := range events.Inboxes {
		ends, err := admin.EndOffsets(ctx, m.ns.Inbox(inbox))
		if err != nil {
			m.t.Fatal(err)
		}
		for p, end := range ends {
			c.Consumed(inbox, p, end-lags[m.ns.Inbox(inbox)][p])
		}
	}
}

// reportFaults tells what is broken, but for what is known of the embedded broker.
func (m *mix) reportFaults(ctx context.Context, report *verify.Report) {
	m.t.Helper()
	told, torn := 0, 0
	for _, f := range report.Faults {
		if m.tornByKill(ctx, f) {
			torn++
			m.logEvent("torn by a kill of the broker: %s", f)
			continue
		}
		if m.seen.gaps > 0 && strings.Contains(f.What, "and there is no such record") {
			continue // it was trimmed before it was seen
		}
		if told++; told > toldMost {
			continue
		}
		m.t.Error(f)
		if f.Task != "" && told <= timelinesMost {
			m.timeline(f.Task)
		}
	}
	if told > toldMost {
		m.t.Errorf("%d promises are broken in all", told)
	}
	if torn > 0 {
		m.counts["transactions torn by kills of the embedded broker, of which something shows"] += torn
	}
	for _, crash := range m.platform.crashes {
		m.t.Errorf("a process crashed: %s", crash)
	}
	if m.seen.gaps > 0 {
		m.t.Logf("%d stretches of inboxes were trimmed before they were seen", m.seen.gaps)
	}
}

// tornFaults are what shows of a transaction whose end was torn: a part of what
// it wrote is there, another is not. Events aren't among them. An attempt of which only
// the request is left is begun anew, with another complete-by, and has two then.
var tornFaults = []string{"has no request", "is of no attempt in the log", "was written twice", "is to be complete by", "there is no dead letter of it",
	"no alert tells of it", "was not forwarded"}

// tornByKill reports whether a fault is the known limit of the embedded broker:
// the end of a transaction isn't atomic under kill -9. Nothing else is, and
// nothing that isn't close to a kill.
func (m *mix) tornByKill(ctx context.Context, f verify.Fault) bool {
	if len(m.kills) == 0 || !slices.ContainsFunc(tornFaults, func(s string) bool { return strings.Contains(f.What, s) }) {
		return false
	}
	close := false
	near := func(r *events.Record) {
		for _, kill := range m.kills {
			close = close || r.Time.Sub(kill).Abs() < tornWithin
		}
	}
	topic := string(m.ns) + f.Topic
	if f.Topic == "" {
		topic = m.ns.Events()
	}
	err := m.read(ctx, topic, kafka.Range{Partitions: []int32{f.Partition}}, func(r *events.Record) {
		if f.Topic != "" && r.Offset == f.Offset || f.Topic == "" && string(r.Key) == f.Task {
			near(r)
		}
	})
	return err == nil && close
}

// compareDigests gives the checkers the digests of what the roles' stores hold, and of
// rebuilds at the same offsets.
func (m *mix) compareDigests(ctx context.Context, c *verify.Checker) {
	m.t.Helper()
	history := make([][]events.Record, events.DefaultPartitions)
	err := m.read(ctx, m.ns.Events(), kafka.Range{}, func(r *events.Record) { history[r.Partition] = append(history[r.Partition], *r) })
	if err != nil {
		m.t.Fatal(err)
	}
	admin, err := kafka.OpenAdmin(m.site.proxiedConfig(m.ns))
	if err != nil {
		m.t.Fatal(err)
	}
	defer admin.Close()
	cluster, err := admin.ClusterID(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	id := projections.Identity{ClusterID: cluster, Namespace: m.ns, Partitions: events.DefaultPartitions}
	for _, s := range m.platform.slots {
		for _, view := range []string{projections.ViewTasks, projections.ViewDeadlines, projections.ViewTimelines} {
			dir := filepath.Join(s.spec.DataDir, view)
			if _, err := os.Stat(dir); s.spec.DataDir == "" || err != nil {
				continue
			}
			id.View = view
			if err := compare(c, id, dir, m.t.TempDir(), s.spec.Name, history); err != nil {
				m.t.Errorf("%s of %s: %v", view, s.spec.Name, err)
			}
		}
	}
}

// stored is a view that can be rebuilt and compared.
type stored interface {
	Next() int64
	Apply(r *events.Record) error
	Digest() (string, error)
	Discard()
}

func viewOf(s *projections.Store, view string, p int32) (stored, error) {
	switch view {
	case projections.ViewTasks:
		return s.Tasks(p)
	case projections.ViewDeadlines:
		return s.Deadlines(p)
	}
	return s.Timelines(p)
}

// compare gives the checkers the digests of a store and of its rebuild.
func compare(c *verify.Checker, id projections.Identity, dir, fresh, name string, history [][]events.Record) (err error) {
	live, err := projections.Open(dir, id, projections.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, live.Close()) }()
	again, err := projections.Open(fresh, id, projections.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, again.Close()) }()
	held, err := live.Partitions()
	if err != nil {
		return err
	}
	for _, p := range held {
		if err := comparePartition(c, id.View, name, p, live, again, history[p]); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	return nil
}

func comparePartition(c *verify.Checker, view, name string, p int32, live, again *projections.Store, history []events.Record) error {
	a, err := viewOf(live, view, p)
	if err != nil {
		return err
	}
	defer a.Discard()
	b, err := viewOf(again, view, p)
	if err != nil {
		return err
	}
	defer b.Discard()
	for i := range history {
		if history[i].Offset < a.Next() {
			if err := b.Apply(&history[i]); err != nil {
				return err
			}
		}
	}
	for by, v := range map[string]stored{name: a, "a rebuild for " + name: b} {
		sum, err := v.Digest()
		if err != nil {
			return err
		}
		c.Digest(verify.Digest{View: view, By: by, Partition: p, Offset: a.Next(), Sum: sum})
	}
	return nil
}
