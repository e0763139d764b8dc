package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/supervisor"
)

// cluster is a namespace on Apache Kafka, with roles in separate processes.
type cluster struct {
	t         *testing.T
	binary    string
	cfg       kafka.Config
	dir       string
	procs     map[string]*exec.Cmd
	logs      map[string]*bytes.Buffer
	services  *demo.Services
	url       string
	log       *verify.Checker // what follow has read; verified decides
	seen      system          // the same, for checkLog
	inputs    *inboxes
	mu        sync.Mutex
	ended     map[string]events.TaskState
	received  int                 // tasks
	forgotten map[int32]time.Time // by partition: ids of tasks whose forget_at isn't later
	waits     int                 // that have started
	calls     int                 // of repeated steps, that completed and weren't the last
	// reports counts recorded progress, silences the attempts that expired without it.
	reports, silences int
	times             []eventTime
	next              map[int32]int64 // the next offset of each partition
	followError       error           // why reading restarted last
	change            chan struct{}

	card          func(i int) string // of submission i; nil: a few are slow
	sweepInterval time.Duration      // of supervisors
}

// eventTime is when an event of a partition was appended. claimed is the owner, if the event is a claim.
type eventTime struct {
	partition int32
	at        time.Time
	claimed   string
}

const clusterWorkflow = `
workflow: shop
version: 1
complete_within: 2h
on_error: undo
defaults:
  complete_within: 4s
  retry: {max_attempts: 1000, backoff: 200ms, factor: 2, max: 2s}
steps:
  reserve: {agent: shop, operation: reserve, input: {order: "${ task.id }"}, undo: {operation: release}}
  charge: {needs: [reserve], agent: shop, operation: charge, input: {card: "${ input.card }"}, undo: {operation: refund}}
  ship: {needs: [charge], agent: shop, operation: create, input: {order: "${ task.id }"}, undo: {operation: recall}}
`

func newCluster(t *testing.T) *cluster {
	b := kafkatest.Kafka(t)
	binary, err := product()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, binary: binary, dir: t.TempDir(), procs: map[string]*exec.Cmd{}, logs: map[string]*bytes.Buffer{}, log: verify.New(verify.Options{Keep: true}),
		cfg:   kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t), ClientID: "test"},
		ended: map[string]events.TaskState{}, forgotten: map[int32]time.Time{}, next: map[int32]int64{}, sweepInterval: supervisor.DefaultSweepInterval, change: make(chan struct{}, 1)}
	c.seen = system{broker: b, ns: c.cfg.Namespace, partitions: events.DefaultPartitions}
	if c.services, err = demo.OpenServices(filepath.Join(c.dir, "ledger.jsonl")); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c.services)
	c.url = server.URL
	t.Cleanup(func() {
		for name := range c.procs {
			c.kill(name)
		}
		server.Close()
		if err := c.services.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for name, log := range c.logs {
				t.Logf("--- %s\n%s", name, tailOf(log.String(), 4000))
			}
		}
	})
	return c
}

func tailOf(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

// waybill runs a command to its end.
func (c *cluster) waybill(args ...string) string {
	c.t.Helper()
	out, note, code := endsWith(c.t, exitOK, nil, c.connected(args)...)
	if code != exitOK {
		c.t.Fatalf("waybill %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, note)
	}
	return out + note
}

func (c *cluster) connected(args []string) []string {
	return append(slices.Clone(args), "--brokers", strings.Join(c.cfg.Brokers, ","), "--namespace", string(c.cfg.Namespace))
}

// start runs a role in a separate process, under a name.
func (c *cluster) start(name string, args ...string) {
	c.t.Helper()
	cmd := exec.Command(c.binary, c.connected(args)...)
	log := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.procs[name], c.logs[name] = cmd, log
}

// kill sends SIGKILL.
func (c *cluster) kill(name string) {
	cmd := c.procs[name]
	delete(c.procs, name)
	_ = cmd.Process.Kill() // it may have ended already
	_ = cmd.Wait()         // the error is that it was killed
}

func (c *cluster) scheduler(name string) {
	c.start(name, "scheduler", "--data-dir", filepath.Join(c.dir, name), "--workers", "2", "--session-timeout", "3s", "--transaction-timeout", "5s")
}

func (c *cluster) supervisor(name string) {
	c.start(name, "supervisor", "--data-dir", filepath.Join(c.dir, name), "--session-timeout", "3s", "--sweep-interval", c.sweepInterval.String())
}

func (c *cluster) agent(name, url string, session time.Duration) {
	c.start(name, "agent", "http", "--agent", "shop", "--url", url, "--session-timeout", session.String())
}

// apply creates the topics and applies a workflow.
func (c *cluster) apply(definition string) {
	c.t.Helper()
	file := filepath.Join(c.dir, "workflow.yaml")
	if err := os.WriteFile(file, []byte(definition), 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.waybill("topics", "create")
	c.waybill("workflow", "apply", file)
}

// follow reads committed events and inbox records, as any client can.
func (c *cluster) follow() {
	c.t.Helper()
	c.inputs = followInboxes(c.t, &c.seen)
	follow(c.t, logreader.FollowerConfig{Config: c.cfg, Group: string(c.cfg.Namespace) + "test", Topics: []string{c.cfg.Namespace.Events()},
		Partitions: events.DefaultPartitions, Start: c.startAt}, c.take, c.followFailed)
}

// followFailed keeps why reading restarts. On a busy machine the group may remove this member.
func (c *cluster) followFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followError = err
}

func (c *cluster) startAt(_ context.Context, _ string, p int32) (int64, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next[p], true, nil
}

func (c *cluster) take(rs []events.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range rs {
		if rs[i].Offset < c.next[rs[i].Partition] {
			continue // read again after a rebalance
		}
		c.next[rs[i].Partition] = rs[i].Offset + 1
		e := c.log.Event(&rs[i])
		if e == nil {
			continue
		}
		at := eventTime{partition: rs[i].Partition, at: rs[i].Time}
		if f, ok := e.Fact.(*events.PartitionClaimed); ok {
			at.claimed = f.Owner
		}
		if _, ok := e.Fact.(*events.WaitStarted); ok {
			c.waits++
		}
		if _, ok := e.Fact.(*events.CallRepeated); ok {
			c.calls++
		}
		switch f := e.Fact.(type) {
		case *events.TaskReceived:
			c.received++
		case *events.PartitionForgot:
			c.forgotten[rs[i].Partition] = f.Until
		case *events.AttemptProgressed:
			c.reports++
		case *events.AttemptExpired:
			if f.Silence > 0 {
				c.silences++
			}
		}
		c.times = append(c.times, at)
		if t := c.log.Task(e.Task); t != nil && (t.State.Terminal() || t.State == events.StateError) {
			c.ended[t.ID] = t.State
		}
	}
	select {
	case c.change <- struct{}{}:
	default:
	}
}

// await waits until cond holds for what follow has read.
func (c *cluster) await(what string, within time.Duration, cond func() bool) {
	c.t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		ok := cond()
		ended := map[events.TaskState]int{}
		for _, state := range c.ended {
			ended[state]++
		}
		failed := c.followError
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-c.change:
		case <-deadline.C:
			c.t.Fatalf("not within %s: %s; tasks that ended or are held: %v; last error of the reader: %v", within, what, ended, failed)
		}
	}
}

// owners waits until a group is stable with that number of members.
func (c *cluster) owners(group string, members int, within time.Duration) {
	c.t.Helper()
	admin, err := kafkaadmin.Open(c.cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	defer admin.Close()
	deadline := time.Now().Add(within)
	for {
		state, err := admin.DescribeGroup(c.t.Context(), group)
		if err == nil && state.State == "Stable" && len(state.Members) == members {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("group %s has not %d members within %s: %+v, %v", group, members, within, state, err)
		}
		select { // Kafka doesn't notify of group changes
		case <-time.After(100 * time.Millisecond):
		case <-c.t.Context().Done():
		}
	}
}

// verified checks the log, its causes and effects, and the ledger. The submissions of ids were acknowledged.
func (c *cluster) verified(ids []string) {
	c.t.Helper()
	log := checkLog(c.t, &c.seen, testimony{c.inputs, filepath.Join(c.dir, "ledger.jsonl"), ids})
	for _, id := range ids {
		if log.Task(id) == nil {
			c.t.Errorf("task %s is not in the log", id)
		}
	}
}

// TestClusterSurvivesKills runs two schedulers, two supervisors and three agent processes on Apache Kafka. One of each
// is killed with SIGKILL under load, and a third scheduler joins.
func TestClusterSurvivesKills(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	const tasks, rate = 2000, 100
	c := newCluster(t)
	c.apply(clusterWorkflow)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.follow()
	c.scheduler("scheduler-1")
	c.scheduler("scheduler-2")
	c.supervisor("supervisor-1")
	c.supervisor("supervisor-2")
	for i := range 3 {
		c.agent(fmt.Sprint("agent-", i+1), c.url+"/shop/{operation}", 3*time.Second)
	}
	ns := c.cfg.Namespace
	c.owners(ns.SchedulerGroup(), 4, suite.Patience)
	c.owners(ns.SupervisorGroup(), 2, suite.Patience)
	c.owners(ns.AgentGroup("shop"), 3, suite.Patience)

	ids := make([]string, tasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("order-%05d", i)
	}
	submitted := make(chan error, 1)
	var loadEnded time.Time
	go func() {
		err := c.submit(ctx, ids, rate)
		loadEnded = time.Now()
		submitted <- err
	}()

	endedAtLeast := func(n int) func() bool { return func() bool { return len(c.ended) >= n } }
	c.await("a fifth of the tasks ended", suite.Patience, endedAtLeast(tasks/5))
	c.kill("scheduler-1")
	killed := time.Now()
	c.await("two fifths of the tasks ended", suite.Patience, endedAtLeast(2*tasks/5))
	c.kill("supervisor-1")
	c.kill("agent-1")
	c.await("three fifths of the tasks ended", suite.Patience, endedAtLeast(3*tasks/5))
	joined := time.Now()
	c.scheduler("scheduler-3")
	c.await("all tasks ended", suite.Patience, endedAtLeast(tasks))
	if err := <-submitted; err != nil {
		t.Fatal(err)
	}
	for id, s := range c.ended {
		if s != events.StateProcessed {
			t.Errorf("task %s ended %s", id, s)
		}
	}
	c.verified(ids)
	c.report(killed, joined, loadEnded)
}

// submit writes submissions at a rate, with at most aheadMost tasks that haven't ended.
func (c *cluster) submit(ctx context.Context, ids []string, rate int) error {
	producer, err := kafka.OpenProducer(c.cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	const perTick = 10
	tick := time.NewTicker(time.Second * perTick / time.Duration(rate))
	defer tick.Stop()
	failed := make(chan error, len(ids))
	for i, id := range ids {
		for waits := i%perTick == 0; waits; waits = !c.keepsUp(i) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		card := demo.CardWorks
		if i%250 == 0 {
			card = demo.CardSlow
		}
		if c.card != nil {
			card = c.card(i)
		}
		s := events.Submission{ID: id, Workflow: "shop", Input: []byte(`{"card":"` + card + `"}`)}
		producer.SendAsync(ctx, s.Record(c.cfg.Namespace, "test"), func(_ events.Record, err error) {
			if err != nil {
				failed <- err
			}
		})
	}
	if err := producer.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// aheadMost bounds submitted tasks that haven't ended. Without it, a busy machine would have all tasks submitted before
// the first kill, and no work left while partitions are reassigned.
const aheadMost = 400

func (c *cluster) keepsUp(submitted int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return submitted < len(c.ended)+aheadMost
}

// report logs task durations, and each partition's longest silence while tasks were submitted. A partition that keeps
// its owner must not be silent for more than 2 s while others are reassigned.
func (c *cluster) report(killed, joined, loadEnded time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var took []time.Duration
	c.log.Tasks(func(t *events.Task) bool {
		took = append(took, t.UpdatedAt.Sub(t.SubmittedAt))
		return true
	})
	slices.Sort(took)
	c.t.Logf("%d tasks: p50 %s, p99 %s, longest %s", len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	times := slices.DeleteFunc(slices.Clone(c.times), func(e eventTime) bool { return e.at.After(loadEnded) })
	before := silences(times, time.Time{}, killed)
	moves := [][2]time.Time{{killed, lastClaim(times, joined)}, {joined, lastClaim(times, loadEnded)}}
	// A busy machine causes silences without any reassignment; they raise the bound.
	most := max(2*time.Second, 2*slices.Max(slices.Collect(maps.Values(before))))
	owners := map[int32][]string{}
	for _, e := range times {
		if e.claimed != "" {
			owners[e.partition] = append(owners[e.partition], e.claimed)
		}
	}
	moved := 0
	for p := range int32(events.DefaultPartitions) {
		kill, join := silences(times, moves[0][0], moves[0][1])[p], silences(times, moves[1][0], moves[1][1])[p]
		c.t.Logf("partition %2d: longest silence %s before the kill, %s after it, %s after the third joined; owners %v", p,
			before[p].Round(time.Millisecond), kill.Round(time.Millisecond), join.Round(time.Millisecond), owners[p])
		if len(owners[p]) > 1 {
			moved++
		} else if silent := max(kill, join); silent > most {
			c.t.Errorf("partition %d kept its owner and was silent for %s while others moved", p, silent)
		}
	}
	if moved == 0 {
		c.t.Error("no partition moved")
	}
}

// silences returns, for each partition, the longest time between two consecutive events that overlaps a time range.
func silences(times []eventTime, from, to time.Time) map[int32]time.Duration {
	last, longest := map[int32]time.Time{}, map[int32]time.Duration{}
	for _, e := range times {
		if was, had := last[e.partition]; had && e.at.After(from) && was.Before(to) {
			longest[e.partition] = max(longest[e.partition], e.at.Sub(was))
		}
		last[e.partition] = e.at
	}
	return longest
}

// lastClaim returns the time of the last claim before an instant.
func lastClaim(times []eventTime, before time.Time) (at time.Time) {
	for _, e := range times {
		if e.claimed != "" && e.at.Before(before) && e.at.After(at) {
			at = e.at
		}
	}
	return at
}
