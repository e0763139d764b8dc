package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// smallDisk mounts a file system of a few MB on an empty directory. Only root may do that, so on a developer's own account
// the test is skipped. .ci/run runs it: there a test that may not mount fails.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	switch err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); {
	case errors.Is(err, syscall.EPERM) && os.Getenv("CI") == "":
		t.Skipf("only root may mount a disk; .ci/run, as root, runs this test: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// fillUp writes a file until the disk is full.
func fillUp(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4<<10))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk isn't full: %v", err)
	}
}

// diskFailed waits until a process has ended by itself, because the disk of a store is full.
func diskFailed(t *testing.T, p *process, dir string) {
	t.Helper()
	endedByDisk(t, p, "the store in "+dir, "Nothing is lost")
}

// endedByDisk waits until a process has ended by itself, because a disk is full. Its last line says what failed and what
// to do, and no other line says so too.
func endedByDisk(t *testing.T, p *process, failed, kept string) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(suite.Patience):
		t.Fatalf("waybill %s works on with a full disk", p.name)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != exitOther {
		t.Errorf("waybill %s ended with %d", p.name, code)
	}
	last := p.out.tail(1)
	for _, says := range []string{"waybill: " + failed, "no space left on device", kept, "Free space"} {
		if !strings.Contains(last, says) {
			t.Errorf("waybill %s said at last %q, without %q", p.name, last, says)
		}
	}
	if n := strings.Count(p.out.tail(saidLinesMax), "no space left on device"); n != 1 || strings.Contains(p.out.tail(saidLinesMax), "goroutine ") {
		t.Errorf("waybill %s says so %d times:\n%s", p.name, n, p.out.tail(40))
	}
}

// TestFullDiskEndsTheProcess: a scheduler and a supervisor work on a disk that becomes full, amid transactions. Both end
// with one message, and end again as long as the disk is full. With room again they go on: all tasks end, services did
// each step once, the log verifies, and the stores equal a rebuild.
func TestFullDiskEndsTheProcess(t *testing.T) {
	suite.NeedAll(t, "processes on a disk of their own, and Apache Kafka")
	const tasks = 400
	disk := t.TempDir()
	smallDisk(t, disk)
	b := kafkatest.Kafka(t)
	s := onBroker(t, b, quickWorkflow(t, "quick", "undo", httpAttempts))
	shop := openShop(t, nil)
	orders := unattended(demo.Orders(tasks, 3, false))
	file, ballast := ordersFile(t, orders, "quick"), filepath.Join(disk, "ballast")
	dirs := []string{filepath.Join(disk, "scheduler"), filepath.Join(disk, "supervisor")}
	roles := func() []*process {
		return []*process{s.start(t, "scheduler", "--data-dir", dirs[0], "--session-timeout", shortSession),
			s.start(t, "supervisor", "--data-dir", dirs[1], "--session-timeout", shortSession)}
	}
	seen := observe(t, s)
	agents := s.agents(t, shop)
	running := roles()
	submit := startProcess(t, s.env(), "submit", "-f", file)
	ended := seen.awaitEnded(t, tasks/8)
	fillUp(t, ballast)
	for i, p := range running {
		diskFailed(t, p, dirs[i])
	}
	t.Logf("the disk was full with %d of %d tasks ended", ended, tasks)
	for i, p := range roles() {
		diskFailed(t, p, dirs[i])
	}
	<-submit.ended
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	running = roles()
	s.waybill(t, exitOK, "submit", "-f", file, "--wait")
	checkOrders(t, s, seen.inputs, shop.ledger, orders)
	s.waybill(t, exitOK, "verify")
	for _, p := range append(running, agents...) {
		p.stop(t)
	}
	checkDigests(t, s.config(), s.partitions, dirs...)
}

// TestFullDiskEndsUp: the stores of `up` are on a disk that becomes full. The whole process ends with one message. With
// room again it goes on from its log.
func TestFullDiskEndsUp(t *testing.T) {
	suite.NeedAll(t, "a process on a disk of its own")
	const tasks = 400
	u := startUpProcess(t, "--demo", "--workflow", quickWorkflow(t, "quick", "undo", callAttempts))
	u.stop(t)
	state := filepath.Join(u.dir, "state")
	deleteState(t, state)
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	smallDisk(t, state)
	u.start(t)
	orders := unattended(demo.Orders(tasks, 4, false))
	file, ballast := ordersFile(t, orders, "quick"), filepath.Join(state, "ballast")
	seen := observe(t, &u.system)
	submit := startProcess(t, u.env(), "submit", "-f", file)
	ended := seen.awaitEnded(t, tasks/8)
	fillUp(t, ballast)
	diskFailed(t, u.process, state)
	submit.kill()
	t.Logf("the disk was full with %d of %d tasks ended", ended, tasks)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	u.start(t)
	u.waybill(t, exitOK, "submit", "-f", file, "--wait")
	checkOrders(t, &u.system, seen.inputs, u.ledger(), orders)
	u.waybill(t, exitOK, "verify")
	u.stop(t)
}

// TestFullDiskEndsTheEmbeddedBroker: the log of `up` is on a disk that becomes full. The whole process ends with one
// message, and doesn't start until there is room. Then it goes on from its log: no acknowledged order is lost.
func TestFullDiskEndsTheEmbeddedBroker(t *testing.T) {
	suite.NeedAll(t, "a process on a disk of its own")
	const tasks = 400
	u := startUpProcess(t, "--demo", "--workflow", quickWorkflow(t, "quick", "undo", callAttempts))
	u.stop(t)
	log := filepath.Join(u.dir, "kafka")
	deleteState(t, log)
	deleteState(t, filepath.Join(u.dir, "state"))
	if err := os.Mkdir(log, 0o700); err != nil {
		t.Fatal(err)
	}
	smallDisk(t, log)
	u.start(t)
	orders := unattended(demo.Orders(tasks, 4, false))
	file, ballast := ordersFile(t, orders, "quick"), filepath.Join(log, "ballast")
	seen := observe(t, &u.system)
	submit := startProcess(t, u.env(), "submit", "-f", file)
	ended := seen.awaitEnded(t, tasks/8)
	fillUp(t, ballast)
	endedByDisk(t, u.process, "the embedded broker's log in "+log, "No acknowledged record is lost")
	submit.kill()
	t.Logf("the disk was full with %d of %d tasks ended", ended, tasks)
	full := startProcess(t, nil, u.args...)
	<-full.ended
	if said := full.out.tail(saidLinesMax); full.cmd.ProcessState.ExitCode() != exitOther || !strings.Contains(said, log) || strings.Count(said, "no space left on device") != 1 {
		t.Errorf("a start on the full disk ended with %d:\n%s", full.cmd.ProcessState.ExitCode(), said)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	u.start(t)
	u.waybill(t, exitOK, "submit", "-f", file, "--wait")
	checkOrders(t, &u.system, seen.inputs, u.ledger(), orders)
	u.waybill(t, exitOK, "verify")
	u.stop(t)
}
