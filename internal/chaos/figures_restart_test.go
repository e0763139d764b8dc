package chaos

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
)

const (
	restartTasks        = 2_000
	restartTasksFigures = 100_000
	restartsFigures     = 10
)

// A scheduler with many open tasks is killed or terminated. It restarts as the same member with the same data
// directory, and inputs wait for it. The test measures the time from the start of its process to its first event in
// each partition, as a read_committed consumer sees it.
func TestRestart(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	for _, kind := range []string{kafkatest.EmbeddedKind, kafkatest.KafkaKind} {
		t.Run(kind, func(t *testing.T) {
			tasks, restarts := restartTasks, 1
			if *figures {
				tasks, restarts = restartTasksFigures, restartsFigures
			}
			s := newFigureSystem(t, brokerOf(t, kind), time.Hour)
			p := s.start(schedulerChild)
			s.awaitCount(s.cfg.Namespace.Requests(systemAgent), tasks, func() { s.submit("w0", tasks, 0) })
			for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
				load := machineLoad(t)
				var first, last, worked []time.Duration
				for i := range restarts {
					p.signal(t, sig)
					<-p.ended
					r := s.restart(fmt.Sprintf("%d-%d", sig, i))
					p, first, last, worked = r.process, append(first, r.first), append(last, r.last), append(worked, r.worked)
				}
				slices.Sort(first)
				slices.Sort(last)
				slices.Sort(worked)
				tally.Say(t, "restart of a scheduler with %d open tasks after %s, on the %s broker: %d times; from the start of the process to its first event %s, in the last partition %s; of processor time %s; load %s to %s",
					tasks, signalName(sig), kind, restarts, percentiles(first), percentiles(last), percentiles(worked), load, machineLoad(t))
			}
		})
	}
}

func signalName(s syscall.Signal) string {
	if s == syscall.SIGKILL {
		return "kill -9"
	}
	return "SIGTERM"
}

// restarted is a process with the times until its first event, and until the first event in the last partition. It also
// has the CPU time used: on a busy machine a process waits most of the time.
type restarted struct {
	*process
	first, last, worked time.Duration
}

// restart starts the scheduler. Tasks wait for it in all partitions.
func (s *figureSystem) restart(name string) restarted {
	s.t.Helper()
	in := make(chan arrival, 10_000)
	stop := s.follow(s.cfg.Namespace.Events(), func(a arrival) { in <- a })
	defer stop()
	for i := range 8 * systemPartitions { // some for each partition
		sub := events.Submission{ID: fmt.Sprintf("probe-%s-%d", name, i), Workflow: "w0", Input: []byte(`{}`)}
		if err := s.producer.Send(s.t.Context(), sub.Record(s.cfg.Namespace, "test")); err != nil {
			s.t.Fatal(err)
		}
	}
	r := restarted{process: s.start(schedulerChild)}
	seen := map[int32]bool{}
	for len(seen) < systemPartitions {
		select {
		case a := <-in:
			if seen[a.Partition] {
				continue
			}
			seen[a.Partition] = true
			if r.last = a.seen.Sub(r.began); r.first == 0 {
				r.first = r.last
			}
		case <-time.After(suite.Patience):
			s.t.Fatalf("the scheduler writes only in %d partitions within %s", len(seen), suite.Patience)
		}
	}
	r.worked = r.processorTime(s.t)
	return r
}

// processorTime returns the CPU time that a process has used, in steps of 10 ms.
func (p *process) processorTime(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	// User and system time, in ticks, are the fields 14 and 15. The command, field 2, is in parentheses.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var ticks int
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
