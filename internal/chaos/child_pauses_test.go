package chaos

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/waybill-run/waybill/internal/chaos/point"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

func TestPointPassesAreCounted(t *testing.T) {
	p := &pauses{out: &bytes.Buffer{}}
	for _, line := range []string{"stop polled 3", "die sent 1"} {
		if err := p.order(line); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []bool{false, false, true, false} {
		if got := count(p.stop, point.Polled); got != want {
			t.Errorf("pass %d of 3: %v", i+1, got)
		}
	}
	if count(p.stop, point.Sent) || !count(p.die, point.Sent) {
		t.Error("an order to die at a point is one to stop there")
	}
	for _, line := range []string{"", "stop polled", "stop polled x", "jump polled 1"} {
		if p.order(line) == nil {
			t.Errorf("order %q is obeyed", line)
		}
	}
}

// A child stops with all its threads at a given point and continues on SIGCONT. It kills itself at another point.
// SIGTERM ends it cleanly.
func TestChildStopsContinuesAndDies(t *testing.T) {
	t.Parallel()
	s := newSystem(t, brokerOf(t, kafkatest.EmbeddedKind), zombieSession, zombieTransaction)
	helper := s.start(supervisorChild, "helper", false)
	spec := s.spec(schedulerChild, "mortal", false)
	spec.Stop = map[point.Point]int{point.Assigned: 2}
	p := startProcess(t, s.dir, spec)
	p.awaitStop(t, point.Assigned, suite.Patience)
	p.thaw(t)
	s.load.begin(t, submitEvery)
	if _, err := p.stdin.Write([]byte("die committed 1\n")); err != nil {
		t.Fatal(err)
	}
	p.await(t, "at committed", suite.Patience)
	<-p.ended
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v, want kill -9", p.err)
	}
	if ended, _ := helper.hasEnded(); ended {
		t.Error("another child ended")
	}
	helper.freeze(t)
	if running, err := helper.runningThread(); running != "" || err != nil {
		t.Errorf("frozen, but %s (%v)", running, err)
	}
	helper.thaw(t)
	helper.end(t)
}
