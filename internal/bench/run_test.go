package bench

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// small returns options of a load that takes about 1 s.
func small(change func(*Load)) Options {
	l := DefaultLoad()
	l.Tasks, l.Warmup, l.Inflight = 200, 100, 50
	if change != nil {
		change(&l)
	}
	return Options{Load: l}
}

// whole checks what every result must have.
func whole(t *testing.T, r *Result, l Load) {
	t.Helper()
	measured := uint64(l.Tasks)
	if r.Tasks != l.Tasks || r.Processed+r.Undone != int64(l.all()) || !r.Verified {
		t.Errorf("%d tasks, %d processed, %d undone, verified: %v; want %d measured of %d", r.Tasks, r.Processed, r.Undone, r.Verified, l.Tasks, l.all())
	}
	if q := r.Latency.Task; q.Count != measured || !(q.P50 > 0) || q.P50 > q.P90 || q.P90 > q.P99 || q.P99 > q.P999 || q.P999 > q.Max {
		t.Errorf("latency of the task: %+v", q)
	}
	if r.Latency.Ack.Count != measured || r.Latency.Ack.P50 > r.Latency.Task.P50 {
		t.Errorf("latency of the acknowledgement: %+v", r.Latency.Ack)
	}
	if hops := measured * uint64(l.Steps-1); r.Latency.Hop.Count != hops {
		t.Errorf("%d hops, want %d", r.Latency.Hop.Count, hops)
	}
	if !(r.TasksPerSecond > 0 && r.EventsPerSecond > r.TasksPerSecond && r.CPUSeconds > 0 && r.PeakMemory > 0 && r.MeanRecords > 1) {
		t.Errorf("%+v", r)
	}
	// All tasks were processed in transactions that the meter counted.
	if r.Transactions == 0 || r.Records < r.Events || r.Bytes <= r.WireBytes || r.WireBytes == 0 {
		t.Errorf("%d transactions, %d records of %d events, %d bytes, %d on the wire", r.Transactions, r.Records, r.Events, r.Bytes, r.WireBytes)
	}
}

// TestRunAndFloor runs sequential steps and their floor. The floor moves as many records as it reports, and as many
// bytes as Waybill.
func TestRunAndFloor(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Load){
		"chain":   nil,
		"fan-out": func(l *Load) { l.Steps, l.FanOut = 5, true },
		"one step, without warm-up": func(l *Load) {
			l.Steps, l.Warmup = 1, 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			if change != nil {
				suite.NeedAll(t, "further benchmarks")
			}
			t.Parallel()
			o := small(change)
			o.Floor = true
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			whole(t, r, o.Load)
			each := 1 + 3 + 4*o.Load.Steps // a submission, 3 events of the task, and 4 records of each step
			// There may be more: agents repeat requests if a busy machine delays their group's heartbeats.
			if r.Floor.PerTask != each || r.Floor.Moved < int64(each*o.Load.all()) {
				t.Errorf("the floor moved %d records, %d for each of %d tasks; want %d for each", r.Floor.Moved, r.Floor.PerTask, o.Load.all(), each)
			}
			// Without a warm-up, the claims of partitions are included.
			if want := int64((3 + 2*o.Load.Steps) * o.Load.Tasks); r.Events < want || r.Events > want+int64(o.Load.Partitions) {
				t.Errorf("%d events, want %d", r.Events, want)
			}
			if share := r.Floor.EventBytes / r.EventBytes; share < 0.98 || share > 1.02 {
				t.Errorf("an event has %v bytes on the floor and %v in Waybill: it isn't the same work", r.Floor.EventBytes, r.EventBytes)
			}
			if r.FloorPerSecond != r.Floor.TasksPerSecond || r.FloorRatio != r.TasksPerSecond/r.FloorPerSecond || r.Floor.Task.Count != uint64(o.Load.Tasks) {
				t.Errorf("the floor's %v tasks/s, ratio %v, %+v", r.FloorPerSecond, r.FloorRatio, r.Floor)
			}
		})
	}
}

func TestRunOfShares(t *testing.T) {
	suite.NeedAll(t, "a whole benchmark")
	t.Parallel()
	o := small(func(l *Load) { l.UndoShare, l.TimeoutShare, l.AttemptWithin = 0.1, 0.05, time.Second })
	var parts []string
	o.Progress = func(what string, _, _ int64) { parts = append(parts, what) }
	profiled := 0
	o.Profile = func() (func() error, error) {
		profiled++
		return func() error { profiled++; return nil }, nil
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	whole(t, r, o.Load)
	want := o.Load.ends()
	if int64(want[events.StateUndone]) != r.Undone || r.Undone == 0 || r.TimedOut == 0 {
		t.Errorf("%d undone, %d timed out; want %d and some", r.Undone, r.TimedOut, want[events.StateUndone])
	}
	if parts = slices.Compact(parts); !slices.Equal(parts, []string{"warm-up", "tasks", "verify"}) || profiled != 2 {
		t.Errorf("told of %v, profiled %d times", parts, profiled)
	}
}

func TestRunAtARate(t *testing.T) {
	suite.NeedAll(t, "a whole benchmark")
	t.Parallel()
	o := small(func(l *Load) { l.Rate, l.Inflight, l.Tasks = 400, 0, 200 })
	o.NoIndex = true
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	whole(t, r, o.Load)
	if least := float64(o.Load.Tasks-1) / o.Load.Rate; r.Seconds < least {
		t.Errorf("200 tasks at 400/s took %v s, at least %v", r.Seconds, least)
	}
}

// TestBrokenLogGivesNoResult: a corrupted log gives no result.
func TestBrokenLogGivesNoResult(t *testing.T) {
	suite.NeedAll(t, "whole benchmarks")
	t.Parallel()
	for name, corruption := range map[string]func(*events.Record){
		"changed": func(r *events.Record) { r.Value = bytes.Replace(r.Value, []byte(`"total"`), []byte(`"Total"`), 1) },
		"dropped": func(r *events.Record) {
			if headerOf(r) == typeProcessed {
				*r = events.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := small(nil)
			o.corruption = corruption
			r, err := Run(t.Context(), o)
			var broken *BrokenError
			if r != nil || !errors.As(err, &broken) || len(broken.Faults) == 0 || !strings.Contains(err.Error(), "no result") {
				t.Errorf("%+v and %v, want no result and what is broken", r, err)
			}
		})
	}
}

func headerOf(r *events.Record) string {
	v, _ := r.Header(events.HeaderType)
	return v
}

// TestNothingIsLeftOnACluster: after any end of a run, no topic or group is left on the cluster.
func TestNothingIsLeftOnACluster(t *testing.T) {
	suite.NeedAll(t, "a whole benchmark")
	t.Parallel()
	b := kafkatest.Embedded(t)
	cluster := kafka.Config{Brokers: b.Addrs}
	o := small(nil)
	o.Cluster, o.Floor = &cluster, true
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	whole(t, r, o.Load)
	o.corruption = func(r *events.Record) { r.Value = nil }
	if _, err := Run(t.Context(), o); err == nil {
		t.Error("a corrupt log gave a result")
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(t.Context())
	if err != nil || len(topics.Names()) > 0 {
		t.Errorf("topics are left behind: %v, %v", topics.Names(), err)
	}
	groups, err := kadm.NewClient(cl).ListGroups(t.Context())
	if err != nil || len(groups.Groups()) > 0 {
		t.Errorf("groups are left behind: %v, %v", groups.Groups(), err)
	}
}

func TestAFolderIsNotWrittenOver(t *testing.T) {
	o := small(nil)
	o.Dir = t.TempDir()
	if err := os.Mkdir(o.Dir+"/floor", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "floor") {
		t.Errorf("a folder in use: %v", err)
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	o := small(func(l *Load) { l.Tasks = 1_000_000 })
	o.Profile = func() (func() error, error) {
		cancel()
		return func() error { return nil }, nil
	}
	if r, err := Run(ctx, o); r != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v and %v, want to be interrupted", r, err)
	}
}

func TestRunOpen(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	t.Parallel()
	o := OpenOptions{Options: small(nil), Levels: []int{0, 500}, Rounds: 1}
	r, err := RunOpen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Levels) != 2 || !r.Verified || r.Levels[1].Open != 500 {
		t.Fatalf("%+v", r)
	}
	for i := range r.Levels {
		x := &r.Levels[i]
		whole(t, x.Result, o.Load)
		if x.CPURatio != x.Result.CPUPerTask/r.Levels[0].Result.CPUPerTask || x.ThroughputRatio != x.Result.TasksPerSecond/r.Levels[0].Result.TasksPerSecond {
			t.Errorf("at %d: ratios of %v and %v", x.Open, x.CPURatio, x.ThroughputRatio)
		}
		if !(x.Bounded > 0 && x.Bounded < 2*x.Bounds) {
			t.Errorf("at %d: %d bytes of bounds of %d", x.Open, x.Bounded, x.Bounds)
		}
	}
	if x := &r.Levels[1]; !(x.ParkCPU > 0) || r.Levels[0].ParkCPU != 0 {
		t.Errorf("it took %v us to open a task, and %v to open none", x.ParkCPU, r.Levels[0].ParkCPU)
	}
	o.Levels = []int{5, 1}
	if _, err := RunOpen(t.Context(), o); err == nil {
		t.Error("levels that fall were taken")
	}
	o.Levels, o.Rounds = []int{0}, 0
	if _, err := RunOpen(t.Context(), o); err == nil {
		t.Error("no rounds were taken")
	}
}

// TestAtLevel: each round is compared with the first level in the same round, so that drift of the machine's speed
// cancels out.
func TestAtLevel(t *testing.T) {
	round := func(cpu, throughput float64, memory int64) OpenLevel {
		return OpenLevel{Open: 100, RolesMemory: memory, Bounded: memory / 2, Result: &Result{CPUPerTask: cpu, TasksPerSecond: throughput}}
	}
	first := []OpenLevel{round(100, 50, 10), round(200, 25, 20), round(400, 10, 30)}
	rounds := []OpenLevel{round(110, 45, 1000), round(240, 20, 3000), round(420, 9, 2000)}
	rounds[0].ParkCPU = 7
	x := summarizeLevel(rounds, first)
	if x.CPURatio != 1.1 || x.ThroughputRatio != 0.9 || x.RolesMemory != 2000 || x.Bounded != 1000 || x.Result.CPUPerTask != 240 || x.ParkCPU != 7 {
		t.Errorf("%+v", x)
	}
	base := summarizeLevel(first, first)
	base.Open = 0
	if x.computePerTask(&base); base.CPURatio != 1 || x.PerTask != (2000-20)/100. || x.PerTaskUnbounded != x.PerTask-(1000-10)/100. {
		t.Errorf("%+v beside %+v", x, base)
	}
}

func TestRunRestore(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	t.Parallel()
	o := RestoreOptions{Options: small(nil), Open: 100}
	r, err := RunRestore(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	// 9 events per task, 3 per open task, and the claims.
	if least := int64(9*o.Load.all() + 3*(o.Open+o.probes())); r.Empty.Events < least || !r.Verified {
		t.Errorf("%d events with an empty disk, want %d; verified: %v", r.Empty.Events, least, r.Verified)
	}
	// On a busy machine a worker may lose partitions; the events since are then read again.
	if moved := r.Store.Begun > int(o.Load.Partitions); r.Store.Events != 0 && !moved {
		t.Errorf("%d events from the store, want none", r.Store.Events)
	}
	if least := int64(9*o.Load.all() + 3*(o.Open+2*o.probes())); r.Events < least || r.Events > least+int64(4*o.Load.Partitions) {
		t.Errorf("%d events in the log, want %d and claims", r.Events, least)
	}
	for _, x := range []Restored{r.Empty, r.Store} {
		if !(x.AssignedSeconds > 0 && x.FirstSeconds > x.AssignedSeconds && x.RestoredSeconds >= x.AssignedSeconds && x.CPUSeconds > 0) {
			t.Errorf("%+v", x)
		}
	}
	if r.Empty.EventsPerCoreSec == 0 || r.Empty.EventsPerSecond == 0 {
		t.Errorf("%+v", r.Empty)
	}
}

func TestRunTimers(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	t.Parallel()
	o := TimersOptions{Options: small(nil), Armed: 200, Burst: 100, Spread: 40, Rate: 100, Within: 1500 * time.Millisecond}
	r, err := RunTimers(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	whole(t, r.With, o.Load)
	whole(t, r.Without, o.Load)
	if r.Burst.Count != 100 || r.Spread.Count != 40 || !r.Verified {
		t.Errorf("%+v", r)
	}
	o.Armed = 3
	if _, err := RunTimers(t.Context(), o); err == nil {
		t.Error("an odd number of timers was taken")
	}
}
