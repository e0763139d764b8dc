//go:build synctests

package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/projections"
)

// repeatMax is the longest pause between two recoveries for the same timer.
const repeatMax = 30 * time.Second

// settleWithin is the bound of P14: three times the sum of the session timeout and the longest wait.
const settleWithin = 3 * (sessionTimeout + repeatMax)

// P16: when recoverWithin has passed since the last fault, a timer fires within latestBy of its due time. By then the
// group has removed dead owners, and lost recoveries were sent again.
const (
	latestBy      = 50 * time.Millisecond
	recoverWithin = 3*sessionTimeout + repeatMax
	punctualLasts = 30 * time.Second
)

func newDisk() *vfs.MemFS { return vfs.NewCrashableMem() }

// calm continues the load with faults of services only. During it timers must be punctual.
func (w *simulation) calm(ctx context.Context) {
	w.punctual = time.Now().Add(recoverWithin)
	select {
	case <-ctx.Done():
	case <-time.After(recoverWithin + punctualLasts):
	}
	w.services.beKind()
}

// settle waits, with all faults off, until all tasks have ended or are held. It doesn't report the rest; the checkers
// do.
func (w *simulation) settle(ctx context.Context) {
	w.quiet = time.Now()
	admin, err := kafkaadmin.Open(w.config("sim"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer admin.Close()
	for time.Since(w.quiet) < settleWithin {
		time.Sleep(2 * time.Second)
		if w.lag(ctx, admin) != 0 {
			continue
		}
		if w.drained.IsZero() {
			w.drained = time.Now()
		}
		if w.open(ctx) == 0 { // a tree of tasks may take longer, and each of its records is a new lag
			break
		}
	}
	w.settled = time.Now()
	w.left = w.lag(ctx, admin)
	w.note("faults", "settled after %s; lag %d %q", w.settled.Sub(w.quiet), w.left, w.lags)
}

// lag returns the number of records that no group has consumed. Transaction markers aren't records, and no group
// commits their offsets at the end of a partition.
func (w *simulation) lag(ctx context.Context, admin *kafkaadmin.Admin) int64 {
	groups := []string{w.ns.SchedulerGroup()}
	for _, a := range agents {
		groups = append(groups, w.ns.AgentGroup(a))
	}
	var n int64
	w.lags = nil
	for _, g := range groups {
		lags, err := admin.GroupLag(ctx, g)
		if err != nil {
			w.note("sim", "%v", err)
			return -1
		}
		for topic, ps := range lags {
			for p, l := range ps {
				if l = w.unread(ctx, admin, topic, p, l); l > 0 {
					w.lags = append(w.lags, fmt.Sprintf("%s of %s/%d is %d behind", g, topic, p, l))
					n += l
				}
			}
		}
	}
	return n
}

// unread counts the records among the last n offsets of a partition.
func (w *simulation) unread(ctx context.Context, admin *kafkaadmin.Admin, topic string, p int32, n int64) (records int64) {
	if n == 0 {
		return 0
	}
	ends, err := admin.EndOffsets(ctx, topic)
	if err != nil {
		w.note("sim", "%v", err)
		return n
	}
	w.read(ctx, topic, func(r *events.Record) {
		if r.Partition == p && r.Offset >= ends[p]-n {
			records++
		}
	})
	return records
}

// read passes the committed records of a topic to fn.
func (w *simulation) read(ctx context.Context, topic string, fn func(r *events.Record)) {
	w.t.Helper()
	reader, err := logreader.OpenRestorer(w.config("sim"), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer reader.Close()
	_, err = reader.ReadAll(ctx, topic, logreader.Range{}, func(rs []events.Record) error {
		for i := range rs {
			fn(&rs[i])
		}
		return nil
	}, nil)
	if err != nil {
		w.t.Errorf("read %s: %v", topic, err)
	}
}

// open counts the acknowledged tasks that haven't ended and aren't held.
func (w *simulation) open(ctx context.Context) int {
	log := verify.NewLog()
	w.read(ctx, w.ns.Events(), func(r *events.Record) { log.Add(r) })
	open := 0
	w.load.mu.Lock()
	defer w.load.mu.Unlock()
	for id := range w.load.acked {
		if t := log.Task(id); t == nil || t.Open() && t.State != events.StateError && !waitsForHeld(log, t) {
			open++
		}
	}
	return open
}

// check reads all topics as an external client and checks them against the guarantees.
func (w *simulation) check(ctx context.Context) {
	w.t.Helper()
	o := verify.Options{Namespace: w.ns, Partitions: partitions, Keep: true, Inputs: true, Ledger: true, Deadletters: true, Alerts: true, Requests: true, Whole: true,
		DrainWithin: settleWithin, LatestBy: latestBy, Exempt: w.exempt}
	c := verify.New(o)
	c.Disturbed(verify.AllPartitions, w.begin, w.punctual)
	for _, topic := range w.ns.InboxTopics() {
		w.read(ctx, topic, c.Input)
	}
	var log []events.Record
	w.read(ctx, w.ns.Events(), func(r *events.Record) {
		c.Event(r)
		log = append(log, *r)
		w.outcome.count(r)
		w.checked(r)
	})
	w.outcome.events = len(log)
	for _, a := range agents {
		w.read(ctx, w.ns.Requests(a), c.Request)
	}
	w.read(ctx, w.ns.Deadletters(), c.Deadletter)
	w.read(ctx, w.ns.Alerts(), c.Alert)
	for _, e := range w.services.ledger {
		c.Effect(e)
	}
	for id, at := range w.load.acked {
		c.Acknowledged(id, at)
	}
	c.Quiet(w.quiet)
	if !w.drained.IsZero() {
		c.Lag(w.drained, 0)
	}
	c.Lag(w.settled, w.left)
	w.digests(ctx, c, log)
	w.fromSnapshots(ctx, c, log)
	report := c.Finish(w.settled)
	if report.Broken > 0 {
		w.fail(report, log)
	}
}

// faultsTold is the number of faults that are reported for each guarantee.
const faultsTold = 4

// fail reports the broken guarantees, the injected faults, and the shortest timeline of the first broken task.
func (w *simulation) fail(r *verify.Report, log []events.Record) {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d breaks %d promises; again: go test ./internal/sim -seed %d -seeds 1 -minutes %d\n", w.seed, r.Broken, w.seed, *minutes)
	broken, told := "", map[string]int{}
	for _, f := range r.Faults {
		if told[f.Promise]++; told[f.Promise] <= faultsTold {
			fmt.Fprintf(&b, "  %s\n", f)
		}
		if broken == "" {
			broken = f.Task
		}
	}
	if broken != "" {
		fmt.Fprintf(&b, "timeline of %s:\n", broken)
		for i := range log {
			if string(log[i].Key) == broken {
				what, _ := log[i].Header(events.HeaderType)
				fmt.Fprintf(&b, "  %s %d/%d %s %s\n", log[i].Time.Sub(w.begin).Truncate(time.Millisecond), log[i].Partition, log[i].Offset, what, log[i].Value)
			}
		}
	}
	b.WriteString("what happened:\n")
	for _, n := range w.notes {
		if *verbose || strings.Contains(n, "faults:") || broken != "" && strings.Contains(n, broken) {
			fmt.Fprintf(&b, "  %s\n", n)
		}
	}
	w.t.Error(b.String())
}

// digests compares every store, as it is on its disk, with a rebuild up to the store's offset.
func (w *simulation) digests(ctx context.Context, c *verify.Checker, log []events.Record) {
	for _, p := range w.procs {
		switch p.role.name {
		case schedulerRole.name:
			w.digest(ctx, c, p, projections.ViewTasks, log)
		case supervisorRole.name:
			w.digest(ctx, c, p, projections.ViewDeadlines, log)
		}
	}
}

// view is the part of a projection that digest needs.
type view interface {
	Next() int64
	Apply(r *events.Record) error
	Digest() string
	Discard()
}

func openView(s *projections.Store, name string, p int32) (view, error) {
	if name == projections.ViewTasks {
		return s.Tasks(p)
	}
	return s.Deadlines(p)
}

func (w *simulation) digest(ctx context.Context, c *verify.Checker, proc *process, name string, log []events.Record) {
	admin, err := kafkaadmin.Open(w.config("sim"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer admin.Close()
	cluster, err := admin.ClusterID(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	id := projections.Identity{ClusterID: cluster, Namespace: w.ns, Partitions: partitions, View: name}
	left, err := projections.Open("data/"+name, id, projections.Options{FS: proc.disk})
	if err != nil {
		w.t.Errorf("seed %d: the store of %s can't be opened: %v", w.seed, proc, err)
		return
	}
	defer w.closed(left)
	for p := range int32(partitions) {
		fresh, err := projections.Open("rebuilt", id, projections.Options{FS: newDisk()})
		if err != nil {
			w.t.Fatal(err)
		}
		next := w.digestOf(c, left, name, "store of "+proc.name, p, nil)
		w.digestOf(c, fresh, name, "rebuilt", p, func(v view) {
			for i := range log {
				if r := &log[i]; r.Partition == p && r.Offset < next {
					if err := v.Apply(r); err != nil {
						w.t.Errorf("seed %d: rebuild: %v", w.seed, err)
						return
					}
				}
			}
		})
		w.closed(fresh)
	}
}

// digestOf passes the checker the digest of a view, as of the offset of the first store that had reached it.
func (w *simulation) digestOf(c *verify.Checker, s *projections.Store, name, by string, p int32, rebuild func(view)) (next int64) {
	v, err := openView(s, name, p)
	if err != nil {
		w.t.Errorf("seed %d: %s: %v", w.seed, by, err)
		return 0
	}
	defer v.Discard()
	if rebuild != nil {
		rebuild(v)
	} else {
		w.reflects = v.Next()
	}
	c.Digest(verify.Digest{View: name, By: by, Partition: p, Offset: w.reflects, Sum: v.Digest()})
	return w.reflects
}

func (w *simulation) closed(s *projections.Store) {
	if err := s.Close(); err != nil {
		w.t.Errorf("seed %d: close a store: %v", w.seed, err)
	}
}

// exempt reports whether a reply is not covered by guarantees. That is so for replies that the test sent again, and for
// all replies of a seed in which agents were stopped or slow. A process that is stopped between its check and the write
// to the socket sends late.
func (w *simulation) exempt(r *events.Record) bool {
	source, _ := r.Header(events.HeaderSource)
	return w.agentsDisturbed || source == liar
}
