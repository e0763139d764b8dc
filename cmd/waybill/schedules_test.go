package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/schedule"
	"github.com/waybill-run/waybill/internal/suite"
)

// schedulesTogether is the number of schedules that have an instant in the same second.
const schedulesTogether = 1000

const scheduledWorkflow = "workflow: scheduled\nversion: 1\ncomplete_within: 1h\nsteps:\n  pause: {wait: 1s}\n"

// schedulesAt writes files of schedules that all have an instant in some seconds, and the next one in twenty minutes at the
// earliest.
func schedulesAt(t *testing.T, n int, in time.Duration) (files []string) {
	t.Helper()
	every := int64(0)
	for at := time.Now().Add(in).Unix(); every == 0; at++ {
		for e := int64(1200); e < 7200 && every == 0; e++ {
			if at%e == 0 {
				every = e
			}
		}
	}
	dir := t.TempDir()
	for i := range n {
		text := fmt.Sprintf("schedule: s-%d\nevery: %ds\nsubmit: {workflow: scheduled, input: {of: \"${ schedule }\", at: \"${ at }\"}}\n", i, every)
		files = append(files, writeIn(t, dir, fmt.Sprintf("s-%d.yaml", i), text))
	}
	return files
}

// applyTogether applies schedules that all have an instant in the same second, soon, but not before they are all applied:
// how long that takes on this machine is found out first, with an instant that is far away.
func applyTogether(t *testing.T, waybill func(args ...string)) {
	t.Helper()
	apply := func(in time.Duration) {
		waybill(append([]string{"schedule", "apply"}, schedulesAt(t, schedulesTogether, in)...)...)
	}
	begin := time.Now()
	apply(15 * time.Minute) // the instant before it is over: instants are 20 minutes apart at least
	apply(10*time.Second + 4*time.Since(begin))
}

// ownerOfSchedules reads the topic of schedules until a task is started, and returns the process that decided it.
func ownerOfSchedules(t *testing.T, c *cluster) (owner string) {
	t.Helper()
	tail, err := logreader.OpenTail(c.cfg, c.cfg.Namespace.Schedules(), map[int32]int64{0: 0})
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	for {
		rs, err := tail.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rs {
			switch kind, _ := rs[i].Header(events.HeaderType); kind {
			case schedule.TypeClaimed:
				var claim schedule.Claim
				if err := json.Unmarshal(rs[i].Value, &claim); err != nil {
					t.Fatal(err)
				}
				owner = claim.Owner
			case schedule.TypeStarted:
				return owner
			}
		}
	}
}

// TestSchedulesSurviveKills: 1,000 schedules have an instant in the same second, on Apache Kafka. The supervisor that starts
// their tasks is killed with kill -9 as soon as it has decided one. Each schedule has one task, and verify finds that each decision
// has its task (P27).
func TestSchedulesSurviveKills(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	c := newCluster(t)
	c.apply(scheduledWorkflow)
	c.follow()
	c.scheduler("scheduler-1")
	for _, name := range []string{"supervisor-1", "supervisor-2"} {
		c.supervisor(name)
	}
	c.owners(c.cfg.Namespace.SchedulesGroup(), 2, suite.Patience)
	applyTogether(t, func(args ...string) { c.waybill(args...) })
	owner := ownerOfSchedules(t, c)
	for name, p := range c.procs {
		if strings.Contains(owner, fmt.Sprintf("-%d-", p.Process.Pid)) {
			c.kill(name)
		}
	}
	if len(c.procs) != 2 {
		t.Fatalf("no process is %s", owner)
	}
	c.awaitProcessed(schedulesTogether)
	c.waybill("verify")
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[string]int{}
	for id := range c.ended {
		name, _, _ := events.ParseScheduledTask(id)
		seen[name]++
	}
	if len(c.ended) != schedulesTogether || len(seen) != schedulesTogether {
		t.Errorf("%d tasks of %d schedules", len(c.ended), len(seen))
	}
}

// TestSchedulesSurviveUpKilled is the same with `up`, which is killed with its embedded broker.
func TestSchedulesSurviveUpKilled(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	u := startUpProcess(t, "--workflow", writeIn(t, t.TempDir(), "scheduled.yaml", scheduledWorkflow))
	seen := observe(t, &u.system)
	applyTogether(t, func(args ...string) { u.waybill(t, exitOK, args...) })
	seen.await(t, "a task runs", func() bool { return seen.begun() > 0 })
	u.kill()
	u.start(t)
	if n := seen.awaitEnded(t, schedulesTogether); n != schedulesTogether {
		t.Errorf("%d tasks ended", n)
	}
	u.waybill(t, exitOK, "verify")
	var list []schedule.Schedule
	if err := json.Unmarshal([]byte(u.waybill(t, exitOK, "schedule", "list", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if v := &list[i]; v.Started != 1 || v.Skipped != 0 || len(v.Running) > 0 || v.Last == nil || v.Last.Status != string(events.StateProcessed) {
			t.Errorf("%+v, last %+v", v, v.Last)
			break
		}
	}
	u.stop(t)
}

func writeIn(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
