package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/schedule"
)

// well returns an observation without problems.
func well() *Observation {
	group := func() Group { return Group{Members: 1, Lag: 5, Moved: true} }
	return &Observation{Namespace: "waybill.", Exists: true, Brokers: 3, Workflows: []string{"order/1"}, Console: "http://127.0.0.1:8080",
		Activity: Activity{Scheduler: group(), Supervisor: group(), Notifier: group(), Agents: map[string]Group{"payments": group()}}}
}

func batchesOf(senders int, trouble string) Batches {
	return Batches{Senders: senders, Open: []*batch.View{{Order: batch.Order{ID: "b"}, Counts: map[batch.Status]int{batch.Waiting: 3, batch.Accepted: 1}, Trouble: trouble}}}
}

func schedulesOf(list ...schedule.Schedule) Schedules {
	return Schedules{time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC), list}
}

func textOf(s string) *string { return &s }

func TestDiagnosis(t *testing.T) {
	for _, x := range []struct {
		name string
		ill  func(o *Observation)
		want string // the one finding that isn't ok: check, result, and a prefix of the finding
	}{
		{"all is well", func(*Observation) {}, ""},
		{"one broker", func(o *Observation) { o.Brokers = 1 }, "brokers note 1: its disk"},
		{"a broker that is gone", func(o *Observation) {
			o.Brokers, o.Replicas = 2, kafkaadmin.ReplicaStatus{MissingBrokers: []int32{3}, UnderReplicated: map[string][]int32{"waybill.events": {1}}}
		}, "brokers note 2; [3] are unavailable"},
		{"all brokers but one are gone", func(o *Observation) { o.Brokers, o.Replicas.MissingBrokers = 1, []int32{2, 3} }, "brokers note 1; [2 3] are unavailable"},
		{"copies that are behind", func(o *Observation) {
			o.Replicas.UnderReplicated = map[string][]int32{"b": {1}, "a": {0, 2}, "c": {1}, "d": {1}}
		},
			"brokers note some replicas are behind: a [0 2], b [1], c [1], and 1 more topic"},
		{"too few copies", func(o *Observation) { o.Replicas.UnderMinISR = map[string][]int32{"waybill.events": {1}} },
			"brokers fault too few replicas are in sync, so nothing can be written to waybill.events [1]"},
		{"no namespace", func(o *Observation) { o.Exists = false }, "topics fault the namespace waybill. has no topics"},
		{"a weak topic", func(o *Observation) { o.Topics = []kafkaadmin.Finding{{Topic: "waybill.tasks", What: "missing"}} }, "topics fault waybill.tasks: missing"},
		{"partitions without a leader", func(o *Observation) { o.Leaderless = map[string][]int32{"waybill.events": {1, 3}} },
			"brokers fault partitions [1 3] of waybill.events have no leader: their records wait"},
		{"an inbox that was cut off", func(o *Observation) {
			o.Positions = []kafkaadmin.PositionFinding{{Position: groupmember.Position{Topic: "waybill.tasks", Partition: 3, Offset: 57, End: 40}, Fault: groupmember.PositionCut}}
		}, "positions fault waybill.tasks/3 ends at 40, but was read up to 57"},
		{"an inbox whose records were deleted", func(o *Observation) {
			o.Positions = []kafkaadmin.PositionFinding{{Position: groupmember.Position{Topic: "waybill.tasks", Partition: 3, Offset: 57, Start: 60}, Fault: groupmember.PositionTrimmed}}
		}, "positions fault waybill.tasks/3 begins at 60, but was read only up to 57"},
		{"a position that somebody has set", func(o *Observation) {
			o.Positions = []kafkaadmin.PositionFinding{{Position: groupmember.Position{Topic: "waybill.tasks", Partition: 3, Offset: 57}, Fault: groupmember.PositionForeign}}
		}, "positions note the group's offsets of waybill.tasks [3] were not committed by a scheduler and aren't used"},
		{"a schedule that is well", func(o *Observation) {
			o.Schedules = schedulesOf(schedule.Schedule{Name: "s", Next: textOf("2026-11-26T10:00:30.000Z")})
		}, ""},
		{"a schedule that nobody starts", func(o *Observation) {
			o.Schedules = schedulesOf(schedule.Schedule{Name: "s", Next: textOf("2026-11-26T09:58:00.000Z")})
		},
			"schedules fault instants of 1 schedule are due, and no supervisor starts their tasks"},
		{"a batch that nobody sends", func(o *Observation) { o.Batches = batchesOf(0, "") },
			"batches fault 1 open batch, 3 tasks without a command yet: they wait for a console, which sends the commands"},
		{"a batch that is sent", func(o *Observation) { o.Batches = batchesOf(1, "") }, ""},
		{"a batch in trouble", func(o *Observation) { o.Batches = batchesOf(1, "no scheduler answers") }, "batches note b: no scheduler answers"},
		{"a schedule that can't be used", func(o *Observation) { o.Schedules = schedulesOf(schedule.Schedule{Name: "s", Fault: "no zone"}) }, "schedules fault s: no zone"},
		{"a schedule of a workflow that isn't there", func(o *Observation) {
			o.Schedules = schedulesOf(schedule.Schedule{Name: "s", Last: &schedule.ScheduleInstant{Task: "s@x", Status: "refused", Detail: "unknown_workflow"}})
		}, "schedules fault s: its last task was refused: unknown_workflow"},
		{"a schedule whose expression fails", func(o *Observation) {
			o.Schedules = schedulesOf(schedule.Schedule{Name: "s", Last: &schedule.ScheduleInstant{Skipped: schedule.Failed, Detail: "no such key"}})
		}, "schedules fault s: an expression failed at its last instant: no such key"},
		{"a schedule that skips", func(o *Observation) {
			o.Schedules = schedulesOf(schedule.Schedule{Name: "s", Running: []string{"s@x"}, Last: &schedule.ScheduleInstant{Skipped: schedule.Overlapped}})
		}, "schedules note s: instants are skipped, because task s@x hasn't ended"},
		{"a schedule that names a deprecated version", func(o *Observation) {
			o.Deprecated = []string{"schedule s names bill/1, which is deprecated: use cash"}
		},
			"workflows note schedule s names bill/1, which is deprecated: use cash"},
		{"a schedule that names a workflow that isn't applied", func(o *Observation) {
			o.Missing = []string{"schedule s names bill/1, which isn't applied: its tasks are refused"}
		}, "workflows fault schedule s names bill/1, which isn't applied: its tasks are refused"},
		{"a workflow that can't be used", func(o *Observation) { o.Unusable = []string{"bill/1 can't be used, so its tasks are refused: line 3"} },
			"workflows fault bill/1 can't be used, so its tasks are refused: line 3"},
		{"no workflow", func(o *Observation) { o.Workflows = nil }, "workflows fault none is applied"},
		{"no scheduler", func(o *Observation) { o.Scheduler = Group{Lag: 7} }, "scheduler fault none runs: submissions and replies wait in the inboxes, lag 7"},
		{"partitions without an owner", func(o *Observation) { o.Scheduler.Unowned = []int32{3} }, "scheduler fault partitions [3] have no owner"},
		{"a scheduler that hangs", func(o *Observation) { o.Scheduler.Moved = false }, "scheduler fault lag 5, and no progress in 6s"},
		{"submissions that none takes, while replies are", func(o *Observation) { o.Scheduler.Submissions = 3 },
			"scheduler fault no submission was consumed in 6s, and 3 wait; lag 5"},
		{"submissions that none takes, and nothing else waits", func(o *Observation) { o.Scheduler.Submissions, o.Scheduler.Moved = 5, false },
			"scheduler fault no submission was consumed in 6s, and 5 wait; lag 5"},
		{"submissions that are taken", func(o *Observation) { o.Scheduler.Submissions, o.Scheduler.SubmissionsMoved = 3, true }, ""},
		{"one that restores", func(o *Observation) { o.Scheduler.Moved, o.Restoring = false, map[int32]float64{3: 0.456, 1: 0} },
			"scheduler note restores partitions from the log before it continues: 1 (0%), 3 (46%); lag 5"},
		{"one that has nothing to do", func(o *Observation) { o.Scheduler.Lag, o.Scheduler.Moved = 0, false }, ""},
		{"no supervisor", func(o *Observation) { o.Supervisor = Group{} }, "supervisor fault none runs: nothing times out"},
		{"notifications that wait", func(o *Observation) { o.Notifier.Moved = false }, "notifier fault notifications wait, lag 5"},
		{"no agent", func(o *Observation) { o.Agents["payments"] = Group{Lag: 2} }, "agent payments fault no process reads its requests, lag 2"},
		{"no agent, and nothing for it", func(o *Observation) { o.Agents["payments"] = Group{} }, "agent payments note none runs, and nothing waits for it"},
		{"an open circuit", func(o *Observation) { o.Agents["payments"] = Group{Members: 1, Circuit: "open"} }, "agent payments fault a circuit breaker of it is open"},
		{"long calls", func(o *Observation) { o.Agents["payments"] = Group{Members: 1, Lag: 2} }, "agent payments note lag 2, and no progress in 6s"},
		{"no console", func(o *Observation) { o.Console = "" }, "console note none of this cluster answers"},
		{"an open transaction", func(o *Observation) { o.ReadersHeldAt = map[int32]int64{4: 90} }, "events note partition 4: an open transaction holds readers at offset 90"},
		{"a transaction that hangs", func(o *Observation) {
			o.Hanging = []*logreader.HangingError{{Topic: "__consumer_offsets", Partition: 7, Producer: 3, Start: 90}}
		}, "transactions fault the transaction of producer 3 hangs in __consumer_offsets/7 from offset 90 on"},
		{"offsets of transactions at work", func(o *Observation) { o.Unstable = []int32{2} }, ""},
		{"offsets that are held back", func(o *Observation) { o.Scheduler.Stalled, o.Unstable = []string{"waybill.replies/2"}, []int32{2} },
			"scheduler note no progress in 6s in waybill.replies/2, where records wait; an open transaction holds back the offsets of partitions [2]"},
		{"a partition that stands still", func(o *Observation) { o.Scheduler.Stalled = []string{"waybill.replies/3"} }, "scheduler note no progress in 6s in waybill.replies/3"},
		{"dead letters", func(o *Observation) { o.Deadletters = 3 }, "dead letters note 3"},
		{"alerts", func(o *Observation) { o.Alerts = 3 }, "alerts note 3"},
		{"what is no alert", func(o *Observation) { o.InvalidAlerts = 2 }, "alerts note 2 records of the alerts topic in the last hour can't be read as alerts"},
	} {
		o := well()
		x.ill(o)
		var found []string
		for _, s := range Diagnose(o) {
			if s.Result != OK {
				found = append(found, s.Check+" "+s.Result+" "+s.Found)
			}
			if s.Result == Fault && s.Fix == "" && len(o.Topics) == 0 {
				t.Errorf("%s: %s says nothing of what to do", x.name, s.Check)
			}
		}
		if got := strings.Join(found, "; "); x.want == "" && got != "" || !strings.HasPrefix(got, x.want) || len(found) > 1 {
			t.Errorf("%s: found %q; want %q", x.name, got, x.want)
		}
	}
}

// TestDiagnosisIsNoWiderThanAScreen: a line of the doctor has a bounded width.
func TestDiagnosisIsNoWiderThanAScreen(t *testing.T) {
	const most = 200
	o := well()
	o.Restoring = map[int32]float64{}
	o.Replicas.UnderReplicated, o.Leaderless = map[string][]int32{}, map[string][]int32{"waybill.events": nil}
	for i := range int32(200) {
		o.Workflows = append(o.Workflows, fmt.Sprintf("a-workflow-with-a-name-%d/1", i))
		o.Restoring[i] = 0.5
		o.Leaderless["waybill.events"] = append(o.Leaderless["waybill.events"], i)
		o.Replicas.UnderReplicated["waybill.events"] = append(o.Replicas.UnderReplicated["waybill.events"], i)
		o.Scheduler.Unowned = append(o.Scheduler.Unowned, i)
		o.Supervisor.Unowned = append(o.Supervisor.Unowned, i)
	}
	for _, s := range Diagnose(o) {
		if n := len(s.Found); n > most {
			t.Errorf("%s: %d columns: %s", s.Check, n, s.Found)
		}
	}
}

// TestDoctorChecksTwice: a group that commits between two observations has moved, even if other partitions of the same
// topic haven't.
func TestDoctorChecksTwice(t *testing.T) {
	at := func(a, b int64) Group {
		return Group{Members: 1, Lag: 9, Commits: map[string]map[int32]int64{"t": {0: a, 1: b}}}
	}
	first := &Activity{Scheduler: at(1, 1), Supervisor: at(1, 1), ReadersHeldAt: map[int32]int64{0: 5, 1: 5},
		Agents: map[string]Group{"payments": at(2, 2), "new": {}}}
	second := &Activity{Scheduler: at(1, 2), Supervisor: at(1, 1), ReadersHeldAt: map[int32]int64{0: 5, 1: 6, 2: 7},
		Agents: map[string]Group{"payments": at(3, 2), "new": {Members: 1}}}
	if !first.hasBacklog() || (&Activity{}).hasBacklog() {
		t.Error("a second look is for what waits")
	}
	second.compareWith(first, "tasks")
	if !second.Scheduler.Moved || second.Supervisor.Moved || !second.Agents["payments"].Moved || second.Agents["new"].Moved {
		t.Errorf("moved: %+v", second)
	}
	if len(second.ReadersHeldAt) != 1 || second.ReadersHeldAt[0] != 5 {
		t.Errorf("readers are held at %v, want partition 0 alone", second.ReadersHeldAt)
	}
}
