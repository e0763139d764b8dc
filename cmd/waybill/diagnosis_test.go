package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/kafka"
)

// well returns an observation without problems.
func well() *observation {
	group := func() groupObservation { return groupObservation{members: 1, lag: 5, moved: true} }
	return &observation{namespace: "waybill.", there: true, brokers: 3, workflows: []string{"order/1"},
		scheduler: group(), supervisor: group(), notifier: group(), console: "http://127.0.0.1:8080", agents: map[string]groupObservation{"payments": group()}}
}

func TestDiagnosis(t *testing.T) {
	for _, x := range []struct {
		name string
		ill  func(c *observation)
		want string // the one symptom that isn't ok: check, result, and a prefix of the finding
	}{
		{"all is well", func(*observation) {}, ""},
		{"one broker", func(c *observation) { c.brokers = 1 }, "brokers note 1: its disk"},
		{"a broker that is gone", func(c *observation) {
			c.brokers, c.copies = 2, kafka.ReplicaStatus{MissingBrokers: []int32{3}, UnderReplicated: map[string][]int32{"waybill.events": {1}}}
		}, "brokers note 2; [3] are unavailable"},
		{"all brokers but one are gone", func(c *observation) { c.brokers, c.copies.MissingBrokers = 1, []int32{2, 3} }, "brokers note 1; [2 3] are unavailable"},
		{"copies that are behind", func(c *observation) {
			c.copies.UnderReplicated = map[string][]int32{"b": {1}, "a": {0, 2}, "c": {1}, "d": {1}}
		},
			"brokers note some replicas are behind: a [0 2], b [1], c [1], and 1 more topics"},
		{"too few copies", func(c *observation) { c.copies.UnderMinISR = map[string][]int32{"waybill.events": {1}} },
			"brokers fault too few replicas are in sync, so nothing can be written to waybill.events [1]"},
		{"no namespace", func(c *observation) { c.there = false }, "topics fault the namespace waybill. has no topics"},
		{"a weak topic", func(c *observation) { c.topics = []kafka.Finding{{Topic: "waybill.tasks", What: "missing"}} }, "topics fault waybill.tasks: missing"},
		{"an imported history", func(c *observation) { c.history = true }, "namespace note its events were imported"},
		{"partitions without a leader", func(c *observation) { c.leaderless = map[string][]int32{"waybill.events": {1, 3}} },
			"brokers fault partitions [1 3] of waybill.events have no leader: their records wait"},
		{"an inbox that was cut off", func(c *observation) {
			c.positions = []kafka.PositionFinding{{Position: kafka.Position{Topic: "waybill.tasks", Partition: 3, Offset: 57, End: 40}, Fault: kafka.PositionCut}}
		}, "positions fault waybill.tasks/3 ends at 40, but was read up to 57"},
		{"an inbox whose records were deleted", func(c *observation) {
			c.positions = []kafka.PositionFinding{{Position: kafka.Position{Topic: "waybill.tasks", Partition: 3, Offset: 57, Start: 60}, Fault: kafka.PositionTrimmed}}
		}, "positions fault waybill.tasks/3 begins at 60, but was read only up to 57"},
		{"a position that somebody has set", func(c *observation) {
			c.positions = []kafka.PositionFinding{{Position: kafka.Position{Topic: "waybill.tasks", Partition: 3, Offset: 57}, Fault: kafka.PositionForeign}}
		}, "positions note no scheduler committed the group's offsets of waybill.tasks [3]: they aren't used"},
		{"no workflow", func(c *observation) { c.workflows = nil }, "workflows fault none is applied"},
		{"no scheduler", func(c *observation) { c.scheduler = groupObservation{lag: 7} }, "scheduler fault none runs: orders and replies wait in the inboxes, lag 7"},
		{"partitions without an owner", func(c *observation) { c.scheduler.unowned = []int32{3} }, "scheduler fault partitions [3] have no owner"},
		{"a scheduler that hangs", func(c *observation) { c.scheduler.moved = false }, "scheduler fault lag 5, and no progress in 6s"},
		{"submissions that none takes, while replies are", func(c *observation) { c.scheduler.submissions = 3 },
			"scheduler fault 3 submissions wait, and none was consumed in 6s; lag 5"},
		{"submissions that none takes, and nothing else waits", func(c *observation) { c.scheduler.submissions, c.scheduler.moved = 5, false },
			"scheduler fault 5 submissions wait, and none was consumed in 6s; lag 5"},
		{"submissions that are taken", func(c *observation) { c.scheduler.submissions, c.scheduler.taken = 3, true }, ""},
		{"one that restores", func(c *observation) { c.scheduler.moved, c.restoring = false, map[int32]float64{3: 0.456, 1: 0} },
			"scheduler note restores partitions from the log before it continues: 1 (0%), 3 (46%); lag 5"},
		{"one that has nothing to do", func(c *observation) { c.scheduler.lag, c.scheduler.moved = 0, false }, ""},
		{"no supervisor", func(c *observation) { c.supervisor = groupObservation{} }, "supervisor fault none runs: nothing times out"},
		{"notifications that wait", func(c *observation) { c.notifier.moved = false }, "notifier fault notifications wait, lag 5"},
		{"no agent", func(c *observation) { c.agents["payments"] = groupObservation{lag: 2} }, "agent payments fault nobody reads its requests, lag 2"},
		{"no agent, and nothing for it", func(c *observation) { c.agents["payments"] = groupObservation{} }, "agent payments note none runs, and nothing waits for it"},
		{"an open circuit", func(c *observation) { c.agents["payments"] = groupObservation{members: 1, circuit: "open"} }, "agent payments fault a circuit of it is open"},
		{"long calls", func(c *observation) { c.agents["payments"] = groupObservation{members: 1, lag: 2} }, "agent payments note lag 2, and no progress in 6s"},
		{"no console", func(c *observation) { c.console = "" }, "console note none of this cluster answers"},
		{"an open transaction", func(c *observation) { c.held = map[int32]int64{4: 90} }, "events note partition 4: an open transaction holds readers at offset 90"},
		{"a transaction that hangs", func(c *observation) {
			c.hanging = []*kafka.HangingError{{Topic: "__consumer_offsets", Partition: 7, Producer: 3, Start: 90}}
		}, "transactions fault the transaction of producer 3 hangs in __consumer_offsets/7 from offset 90 on"},
		{"offsets of transactions at work", func(c *observation) { c.unstable = []int32{2} }, ""},
		{"offsets that are held back", func(c *observation) { c.scheduler.still, c.unstable = []string{"waybill.replies/2"}, []int32{2} },
			"scheduler note no progress in 6s in waybill.replies/2, where records wait; an open transaction holds back the offsets of partitions [2]"},
		{"a partition that stands still", func(c *observation) { c.scheduler.still = []string{"waybill.replies/3"} }, "scheduler note no progress in 6s in waybill.replies/3"},
		{"dead letters", func(c *observation) { c.deadletters = 3 }, "dead letters note 3"},
		{"alerts", func(c *observation) { c.alerts = 3 }, "alerts note 3"},
		{"what is no alert", func(c *observation) { c.invalidAlerts = 2 }, "alerts note 2 records of the last hour aren't alerts"},
	} {
		c := well()
		x.ill(c)
		var found []string
		for _, s := range diagnose(c) {
			if s.Result != fine {
				found = append(found, s.Check+" "+s.Result+" "+s.Found)
			}
			if s.Result == fault && s.Fix == "" && len(c.topics) == 0 {
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
	c := well()
	c.restoring = map[int32]float64{}
	c.copies.UnderReplicated, c.leaderless = map[string][]int32{}, map[string][]int32{"waybill.events": nil}
	for i := range int32(200) {
		c.workflows = append(c.workflows, fmt.Sprintf("a-workflow-with-a-name-%d/1", i))
		c.restoring[i] = 0.5
		c.leaderless["waybill.events"] = append(c.leaderless["waybill.events"], i)
		c.copies.UnderReplicated["waybill.events"] = append(c.copies.UnderReplicated["waybill.events"], i)
		c.scheduler.unowned = append(c.scheduler.unowned, i)
		c.supervisor.unowned = append(c.supervisor.unowned, i)
	}
	for _, s := range diagnose(c) {
		if n := len(s.Found); n > most {
			t.Errorf("%s: %d columns: %s", s.Check, n, s.Found)
		}
	}
}

// TestDoctorLooksTwice: a group that commits between two observations has moved, even if other partitions of the same
// topic haven't.
func TestDoctorLooksTwice(t *testing.T) {
	at := func(a, b int64) groupObservation {
		return groupObservation{members: 1, lag: 9, commits: map[string]map[int32]int64{"t": {0: a, 1: b}}}
	}
	first := &observation{scheduler: at(1, 1), supervisor: at(1, 1), held: map[int32]int64{0: 5, 1: 5},
		agents: map[string]groupObservation{"payments": at(2, 2), "new": {}}}
	second := &observation{scheduler: at(1, 2), supervisor: at(1, 1), held: map[int32]int64{0: 5, 1: 6, 2: 7},
		agents: map[string]groupObservation{"payments": at(3, 2), "new": {members: 1}}}
	if !first.hasBacklog() || (&observation{}).hasBacklog() {
		t.Error("a second look is for what waits")
	}
	second.compareWith(first)
	if !second.scheduler.moved || second.supervisor.moved || !second.agents["payments"].moved || second.agents["new"].moved {
		t.Errorf("moved: %+v", second)
	}
	if len(second.held) != 1 || second.held[0] != 5 {
		t.Errorf("readers stand in %v, want partition 0 alone", second.held)
	}
}
