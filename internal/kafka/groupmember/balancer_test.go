package groupmember

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func assignment(byTopic map[string][]int32) []byte {
	var a kmsg.ConsumerMemberAssignment
	for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
		at := kmsg.NewConsumerMemberAssignmentTopic()
		at.Topic, at.Partitions = topic, byTopic[topic]
		a.Topics = append(a.Topics, at)
	}
	return a.AppendTo(nil)
}

func mustParse(t *testing.T, b *Balancer, byTopic map[string][]int32) {
	t.Helper()
	if _, err := b.ParseSyncAssignment(assignment(byTopic)); err != nil {
		t.Fatal(err)
	}
}

func TestAssignmentNumberChangesOnReassignment(t *testing.T) {
	b := NewBalancer(4)
	var added []int32
	b.OnAdded = func(_ *kgo.Client, ps []int32) { added = append(added, ps...) }

	mustParse(t, b, map[string][]int32{"x": {0, 1}, "y": {0, 1}})
	first := b.Assigned()
	mustParse(t, b, map[string][]int32{"x": {1, 2}, "y": {1, 2}})
	second := b.Assigned()
	if _, has := second[0]; has || second[1] != first[1] || second[2] == 0 {
		t.Fatalf("%v then %v", first, second)
	}

	// The client no longer claims partition 1 when it joins: it lost the partition, although every assignment contained
	// it.
	b.JoinGroupMetadata([]string{"x", "y"}, map[string][]int32{"x": {2}, "y": {2}}, 5)
	if _, has := b.Assigned()[1]; has {
		t.Fatal("a partition that the client lost is still assigned")
	}
	mustParse(t, b, map[string][]int32{"x": {1, 2}, "y": {1, 2}})
	if third := b.Assigned(); third[1] == first[1] || third[2] != second[2] {
		t.Fatalf("%v then %v", second, third)
	}
	if !slices.Equal(added, []int32{0, 1, 2, 1}) {
		t.Fatalf("onAdded saw %v", added)
	}

	b.OnGroupManageError(nil)
	if len(b.Assigned()) != 0 {
		t.Fatal("something is assigned after the session ended")
	}
}

func TestAddedIsCalledBeforeTheAssignmentIsSeen(t *testing.T) {
	b := NewBalancer(1)
	called := false
	b.OnAdded = func(*kgo.Client, []int32) {
		called = true
		if len(b.owned) != 0 {
			t.Error("the assignment was visible before the hook")
		}
	}
	mustParse(t, b, map[string][]int32{"x": {0}})
	if !called {
		t.Fatal("hook not called")
	}
}

func TestBalanceMirrorsNumbersOverTopics(t *testing.T) {
	b := NewBalancer(4)
	var uneven []string
	b.onSubscriptionMismatch = func(m string, _ []string) { uneven = append(uneven, m) }
	member := func(id string, topics ...string) kmsg.JoinGroupResponseMember {
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID = id
		m.ProtocolMetadata = NewBalancer(4).JoinGroupMetadata(topics, nil, -1)
		return m
	}
	gb, topics, err := b.MemberBalancer([]kmsg.JoinGroupResponseMember{member("a", "x", "y"), member("b", "x", "y"), member("c", "x")})
	if err != nil || len(topics) != 2 {
		t.Fatal(topics, err)
	}
	into, err := gb.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{"x": 4, "y": 4})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]map[string][]int32{}
	for _, a := range into.IntoSyncAssignment() {
		if got[a.MemberID], err = kgo.ParseConsumerSyncAssignment(a.MemberAssignment); err != nil {
			t.Fatal(err)
		}
	}
	for id, topics := range got {
		if id != "c" && !slices.Equal(topics["x"], topics["y"]) {
			t.Fatalf("%s has %v: not the same numbers of each topic", id, topics)
		}
	}
	if len(got["c"]["x"]) == 0 || len(got["c"]["y"]) != 0 || !slices.Equal(uneven, []string{"c"}) {
		t.Fatalf("member with fewer topics: got %v, reported %v", got["c"], uneven)
	}
}

// TestAddedPartitionsGoWithTheirs checks that an added partition is assigned together with the partition of its number
// modulo the expected count, and only to members that read added partitions.
func TestAddedPartitionsGoWithTheirs(t *testing.T) {
	for _, takes := range []bool{true, false} {
		b := NewBalancer(3)
		b.IncludeAdded = takes
		var members []kmsg.JoinGroupResponseMember
		for _, id := range []string{"a", "b"} {
			m := kmsg.NewJoinGroupResponseMember()
			m.MemberID, m.ProtocolMetadata = id, b.JoinGroupMetadata([]string{"x", "y"}, nil, -1)
			members = append(members, m)
		}
		gb, _, err := b.MemberBalancer(members)
		if err != nil {
			t.Fatal(err)
		}
		into, err := gb.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{"x": 3, "y": 8})
		if err != nil {
			t.Fatal(err)
		}
		all := map[string][]int32{}
		for _, a := range into.IntoSyncAssignment() {
			got, err := kgo.ParseConsumerSyncAssignment(a.MemberAssignment)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range got["y"] {
				if !slices.Contains(got["x"], p%3) {
					t.Errorf("%s has %v: %d isn't with its own", a.MemberID, got, p)
				}
			}
			all["x"], all["y"] = append(all["x"], got["x"]...), append(all["y"], got["y"]...)
		}
		if want := map[bool]int{true: 8, false: 3}[takes]; len(all["x"]) != 3 || len(all["y"]) != want {
			t.Errorf("takes %v: %v are given, want 3 and %d", takes, all, want)
		}
	}
}

// TestPartitionAssignedAgainWithAnAddedOne checks that a partition gets a new assignment number when an added partition
// joins it, because it was read without the added one before. Both are then paused until they are resumed.
func TestPartitionAssignedAgainWithAnAddedOne(t *testing.T) {
	b := NewBalancer(2)
	b.IncludeAdded = true
	var paused []map[string][]int32
	b.OnAdded = func(_ *kgo.Client, added []int32) {
		paused = append(paused, b.withAddedPartitions([]string{"x", "y"}, added...))
	}
	mustParse(t, b, map[string][]int32{"x": {0, 1}, "y": {0, 1}})
	first := b.Assigned()
	mustParse(t, b, map[string][]int32{"x": {0, 1}, "y": {0, 1, 2, 4}})
	second := b.Assigned()
	if len(second) != 2 || second[0] == first[0] || second[1] != first[1] {
		t.Errorf("%v, then %v", first, second)
	}
	if len(paused) != 2 || !slices.Equal(paused[1]["x"], []int32{0}) || !slices.Equal(paused[1]["y"], []int32{0, 2, 4}) {
		t.Errorf("paused %v", paused)
	}
	b.JoinGroupMetadata([]string{"x", "y"}, map[string][]int32{"x": {0, 1}, "y": {0, 1, 2, 4}}, 5)
	mustParse(t, b, map[string][]int32{"x": {0, 1}, "y": {0, 1, 2, 4}})
	if third := b.Assigned(); !maps.Equal(second, third) {
		t.Errorf("%v, then %v", second, third)
	}
}

func TestMetadataThatIsNotOursIsAnError(t *testing.T) {
	m := kmsg.NewJoinGroupResponseMember()
	m.MemberID, m.ProtocolMetadata = "x", []byte{0, 9, 1}
	if _, _, err := NewBalancer(4).MemberBalancer([]kmsg.JoinGroupResponseMember{m}); err == nil || !strings.Contains(err.Error(), "metadata") {
		t.Fatalf("got %v", err)
	}
}
