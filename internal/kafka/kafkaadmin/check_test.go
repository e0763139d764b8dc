package kafkaadmin

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

const checkNS = events.Namespace("test.")

// FindingsText has a line for each finding.
func FindingsText(fs []Finding) string {
	var b strings.Builder
	for _, f := range fs {
		fmt.Fprintf(&b, "%s: %s (%s)\n", f.Topic, f.What, f.Fix)
	}
	return b.String()
}

// TestCheckTopicsFindsEachWeakness checks that each weakness is found by itself, names its topic and says how to fix
// it.
func TestCheckTopicsFindsEachWeakness(t *testing.T) {
	specs := topicSpecs(checkNS, 4, map[string]int32{"payments": 2})
	sound := func(brokers int) map[string]topicState {
		state := make(map[string]topicState)
		for _, s := range specs {
			settings := maps.Clone(s.settings)
			settings["min.insync.replicas"] = strconv.Itoa(min(2, brokers))
			state[s.name] = topicState{s.partitions, min(3, brokers), settings}
		}
		return state
	}
	for _, brokers := range []int{1, 2, 3, 5} {
		if fs := checkTopics(specs, sound(brokers), brokers); len(fs) > 0 {
			t.Errorf("%d brokers, nothing is wrong: %s", brokers, FindingsText(fs))
		}
	}
	set := func(k, v string) func(*topicState) { return func(s *topicState) { s.settings[k] = v } }
	for _, tt := range []struct {
		topic, want string
		spoil       func(*topicState)
	}{
		{checkNS.Inbox(events.Tasks), "3 partitions instead of 4", func(s *topicState) { s.partitions = 3 }},
		{checkNS.Events(), "5 partitions instead of 4", func(s *topicState) { s.partitions = 5 }},
		{checkNS.Requests("payments"), "replication 2 with 3 brokers", func(s *topicState) { s.replication = 2 }},
		{checkNS.Events(), "min.insync.replicas is 1, not 2", set("min.insync.replicas", "1")},
		{checkNS.Alerts(), "message.timestamp.type is CreateTime, not LogAppendTime", set("message.timestamp.type", "CreateTime")},
		{checkNS.Events(), "cleanup.policy is compact, not delete", set("cleanup.policy", "compact")},
		{checkNS.Events(), "cleanup.policy is compact,delete, not delete", set("cleanup.policy", "compact,delete")},
		{checkNS.Snapshots(), "cleanup.policy is delete, not compact", set("cleanup.policy", "delete")},
		{checkNS.Events(), "retention.ms is 1000, not -1: tasks would be lost", set("retention.ms", "1000")},
		{checkNS.Events(), "retention.bytes is 1000, not -1", set("retention.bytes", "1000")},
		{checkNS.Inbox(events.Controls), "retention.ms is 604800000, not -1", set("retention.ms", "604800000")},
		{checkNS.Inbox(events.Recoveries), "retention.bytes is 1000, not -1", set("retention.bytes", "1000")},
		{checkNS.Definitions(), "unclean.leader.election.enable is true, not false", set("unclean.leader.election.enable", "true")},
		{checkNS.Snapshots(), "max.message.bytes is 1000", set("max.message.bytes", "1000")},
	} {
		state := sound(3)
		s := state[tt.topic]
		tt.spoil(&s)
		state[tt.topic] = s
		fs := checkTopics(specs, state, 3)
		if len(fs) != 1 || fs[0].Topic != tt.topic || !strings.Contains(fs[0].What, tt.want) || fs[0].Fix == "" {
			t.Errorf("want one finding %q at %s, got:\n%s", tt.want, tt.topic, FindingsText(fs))
		}
	}
	state := sound(3)
	delete(state, checkNS.Answers())
	if fs := checkTopics(specs, state, 3); len(fs) != 1 || fs[0].What != "missing" {
		t.Errorf("a missing topic: %s", FindingsText(fs))
	}
}

func TestReplicationFollowsTheBrokers(t *testing.T) {
	for _, tt := range []struct {
		asked   int16
		brokers int
		want    int16
		note    bool
		fails   bool
	}{
		{0, 1, 1, true, false}, {0, 2, 2, true, false}, {0, 3, 3, false, false}, {0, 9, 3, false, false},
		{1, 3, 1, true, false}, {5, 5, 5, false, false}, {4, 3, 0, false, true}, {-1, 3, 0, false, true},
	} {
		got, note, err := replicationFor(tt.asked, tt.brokers)
		if got != tt.want || (note != "") != tt.note || (err != nil) != tt.fails {
			t.Errorf("replicationFor(%d, %d) = %d, %q, %v", tt.asked, tt.brokers, got, note, err)
		}
	}
}
