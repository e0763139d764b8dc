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
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/projections"
)

const (
	// clusterSettles is how long a cluster recovers after a broker restarted: its session, an election, and the loading
	// of coordinators.
	clusterSettles = 10 * time.Second
	// drainLook is the interval at which the lag is checked.
	drainLook = 250 * time.Millisecond
	// tornWithin bounds the time between a kill of the embedded broker and a transaction that it tore.
	tornWithin = 2 * time.Second
	// allFaults is more than the number of faults that can be found. One torn transaction may break the guarantees of
	// as many tasks as it had records.
	allFaults = 1_000_000
	// toldMost bounds the reported faults.
	toldMost      = 20
	timelinesMost = 3
)

// busy is how much longer everything may take on a machine that does other work, too. What drains without it is checked
// in virtual time (internal/sim).
const busy = 8

// drainWithin bounds the time until the backlog is drained after all faults: three times (session timeout + longest
// wait of the policies), on a busy machine. With three nodes, a killed node also has a session, recovers its log and
// loads its groups. On 2 idle cores it takes 9 to 17 s with the embedded broker and with one node of Kafka, and 26 to 28
// s with three.
func (o *mixOptions) drainWithin() time.Duration {
	wait := mixSession + longestWait
	if o.broker == threeKafkas {
		wait += clusterSettles
	}
	return 3 * wait * busy
}

// checks returns the options by which a run is checked.
func checks(ns events.Namespace, drainWithin time.Duration, exempt func(*events.Record) bool) verify.Options {
	return verify.Options{Namespace: ns, Partitions: events.DefaultPartitions, Inputs: true, Ledger: true, Deadletters: true, Alerts: true,
		Requests: true, Faults: allFaults, DrainWithin: drainWithin, ReplyTolerance: replyTolerance, Exempt: exempt}
}

// exempt reports whether a reply is not covered by guarantees: it was repeated by the test, or it may have been
// delayed.
func (m *mix) exempt(reply *events.Record) bool {
	source, _ := reply.Header(events.HeaderSource)
	return source == parrotSource || m.mayBeDelayed(reply.Time) || m.pulse.mayBeDelayed(reply.Time, replyTolerance)
}

// drain waits until every acknowledged task has ended or is held and all groups have consumed everything. It returns
// how long that took.
func (m *mix) drain(ctx context.Context, quiet time.Time) time.Duration {
	m.t.Helper()
	admin, err := kafkaadmin.Open(m.site.proxiedConfig(m.ns))
	if err != nil {
		m.t.Fatal(err)
	}
	defer admin.Close()
	ids := m.load.acknowledged()
	var open []string
	lag := int64(-1)
	// It waits beyond the bound, to distinguish late from never.
	for time.Since(quiet) < m.drainWithin() {
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

// lag returns the number of records that the groups have not consumed. A group's offset may stay below the end if only
// transaction markers follow.
func (m *mix) lag(ctx context.Context, admin *kafkaadmin.Admin) (int64, error) {
	groups := []string{m.ns.SchedulerGroup(), m.ns.SupervisorGroup(), m.ns.NotifierGroup()}
	for _, name := range demo.ServiceNames {
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
func (m *mix) unreadRecords(ctx context.Context, admin *kafkaadmin.Admin, topic string, behind map[int32]int64) (int64, error) {
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
	err = m.read(ctx, topic, logreader.Range{Partitions: some, Since: m.began}, func(r *events.Record) {
		if r.Offset >= ends[r.Partition]-behind[r.Partition] && r.Offset < ends[r.Partition] {
			count++
		}
	})
	return count, err
}

// read reads a topic without the proxies.
func (m *mix) read(ctx context.Context, topic string, in logreader.Range, fn func(*events.Record)) error {
	ctx, cancel := context.WithTimeout(ctx, suite.Patience)
	defer cancel()
	r, err := logreader.OpenRestorer(m.site.proxiedConfig(m.ns), nil)
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

// timeline logs the events of a task.
func (m *mix) timeline(id string) {
	m.t.Helper()
	p := events.Partition([]byte(id), events.DefaultPartitions)
	var b strings.Builder
	err := m.read(context.Background(), m.ns.Events(), logreader.Range{Partitions: []int32{p}}, func(r *events.Record) {
		if string(r.Key) == id {
			kind, _ := r.Header(events.HeaderType)
			fmt.Fprintf(&b, "%8.3f %d/%d %s %s\n", r.Time.Sub(m.began).Seconds(), r.Partition, r.Offset, kind, r.Value)
		}
	})
	m.t.Logf("task %s (%v):\n%s", id, err, &b)
}

// checkResults checks the run against all guarantees. took is how long the drain took.
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
	stood := m.pulse.stalledTime(quiet, quiet.Add(took-drainLook)) // before the last check
	m.t.Logf("of the time that it took to drain, the broker stood still for %s", stood.Round(time.Millisecond))
	c.Quiet(quiet.Add(stood)) // a stalled broker is a fault too
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

// rawLog checks the final log once more. It returns the number of events.
func (m *mix) rawLog(ctx context.Context) int {
	m.t.Helper()
	log := verify.NewLog()
	if err := m.read(ctx, m.ns.Events(), logreader.Range{}, func(r *events.Record) { log.Add(r) }); err != nil {
		m.t.Fatal(err)
	}
	for _, f := range log.Faults[:min(len(log.Faults), toldMost)] {
		m.t.Errorf("in the log as it is: %s", f)
	}
	return log.Events
}

// feed passes the checkers the topics that the observer doesn't follow.
func (m *mix) feed(ctx context.Context, c *verify.Checker) {
	m.t.Helper()
	topics := map[string]func(*events.Record){m.ns.Deadletters(): c.Deadletter, m.ns.Alerts(): c.Alert}
	for _, name := range demo.ServiceNames {
		topics[m.ns.Requests(name)] = c.Request
	}
	for topic, fn := range topics {
		if err := m.read(ctx, topic, logreader.Range{}, fn); err != nil {
			m.t.Fatalf("read %s: %v", topic, err)
		}
	}
	admin, err := kafkaadmin.Open(m.site.proxiedConfig(m.ns))
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

// reportFaults reports the faults, except for the known limit of the embedded broker.
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
			continue // trimmed before it was read
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

// tornFaults are the symptoms of a torn transaction: one part of its records exists and another doesn't. Events aren't
// among them. If only the request of an attempt exists, the attempt is started again with another complete-by, so it
// has two.
var tornFaults = []string{"has no request", "is of no attempt in the log", "was written twice", "is to be complete by", "there is no dead letter of it",
	"no alert tells of it", "was not forwarded"}

// tornByKill reports whether a fault is the known limit of the embedded broker: the end of a transaction isn't atomic
// under SIGKILL. Only faults close to a kill qualify.
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
	err := m.read(ctx, topic, logreader.Range{Partitions: []int32{f.Partition}}, func(r *events.Record) {
		if f.Topic != "" && r.Offset == f.Offset || f.Topic == "" && string(r.Key) == f.Task {
			near(r)
		}
	})
	return err == nil && close
}

// compareDigests passes the checkers the digests of the roles' stores, and of rebuilds at the same offsets.
func (m *mix) compareDigests(ctx context.Context, c *verify.Checker) {
	m.t.Helper()
	history := make([][]events.Record, events.DefaultPartitions)
	err := m.read(ctx, m.ns.Events(), logreader.Range{}, func(r *events.Record) { history[r.Partition] = append(history[r.Partition], *r) })
	if err != nil {
		m.t.Fatal(err)
	}
	admin, err := kafkaadmin.Open(m.site.proxiedConfig(m.ns))
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
	Digest() string
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

// compare passes the checkers the digests of a store and of its rebuild.
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
		c.Digest(verify.Digest{View: view, By: by, Partition: p, Offset: a.Next(), Sum: v.Digest()})
	}
	return nil
}
