package events

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestMurmur2 compares the hash with the test vectors of the Java client (org.apache.kafka.common.utils.UtilsTest).
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, Java's is %d", key, got, want)
		}
		// Java: Utils.toPositive(hash) % partitions
		if got, want := Partition([]byte(key), 12), (want&0x7fffffff)%12; got != want {
			t.Errorf("partition of %q is %d, Java's is %d", key, got, want)
		}
	}
}

// TestPartition checks that every key has a valid partition, and that keys are distributed.
func TestPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int32Range(1, 1000).Draw(t, "n")
		if p := Partition(rapid.SliceOf(rapid.Byte()).Draw(t, "key"), n); p < 0 || p >= n {
			t.Fatalf("partition %d of %d", p, n)
		}
	})
	const keys, partitions = 12_000, 12
	var count [partitions]int
	for i := range keys {
		count[Partition(fmt.Appendf(nil, "order-%d", i), partitions)]++
	}
	for p, n := range count {
		if n < keys/partitions*8/10 || n > keys/partitions*12/10 {
			t.Errorf("partition %d has %d of %d keys: more than a fifth off its share", p, n, keys)
		}
	}
}

// TestNames checks that the names of topics and groups of a namespace don't change.
func TestNames(t *testing.T) {
	ns := Namespace("shop.")
	for got, want := range map[string]string{
		ns.Inbox(Tasks): "shop.tasks", ns.Inbox(Replies): "shop.replies", ns.Inbox(Recoveries): "shop.recoveries", ns.Inbox(Controls): "shop.controls", ns.Inbox(Signals): "shop.signals",
		ns.Events(): "shop.events", ns.Answers(): "shop.answers", ns.Alerts(): "shop.alerts", ns.Definitions(): "shop.definitions",
		ns.Snapshots(): "shop.snapshots", ns.Deadletters(): "shop.deadletters", ns.Notifications(): "shop.notifications",
		ns.Requests("payments"): "shop.requests.payments", ns.SchedulerGroup(): "shop.scheduler", ns.AgentGroup("payments"): "shop.agent.payments",
		IdempotencyKey(ns, "a/b", "s", Undo, 1): "shop.a/b/s/undo/2",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if a, ok := ns.AgentOf("shop.requests.payments"); !ok || a != "payments" {
		t.Errorf("AgentOf: %q, %v", a, ok)
	}
	if _, ok := ns.AgentOf("shop.replies"); ok || !ns.Owns("shop.x") || ns.Owns("shopping") {
		t.Error("a topic of another kind, or of another namespace, was taken for one's own")
	}
}

// TestNamesParse checks that causes, request ids and event ids are parsed as they were written, for any task id.
func TestNamesParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Cause{Inbox(rapid.IntRange(0, int(Inboxes)-1).Draw(t, "inbox")), rapid.Int32Min(0).Draw(t, "partition"), rapid.Int64Min(0).Draw(t, "offset")}
		if got, err := ParseCause(c.String()); err != nil || got != c {
			t.Fatalf("%s reads as %v, %v", c, got, err)
		}
		task := rapid.StringN(1, 40, 256).Draw(t, "task")
		ref := RequestRef{rapid.StringMatching(`[a-z][a-z0-9_-]{0,20}`).Draw(t, "step"), rapid.SampledFrom([]Kind{Do, Undo}).Draw(t, "kind"), rapid.IntRange(1, 1<<30).Draw(t, "attempt")}
		gotTask, got, err := ParseRequestID(RequestID(task, ref))
		if err != nil || gotTask != task || got != ref {
			t.Fatalf("%q reads as %q, %v, %v", RequestID(task, ref), gotTask, got, err)
		}
		token := rapid.StringMatching(`[A-Za-z0-9_-]{0,26}`).Draw(t, "token")
		request, n := appendRequest(nil, task, ref, token)
		gotTask, got, gotToken, err := ParseRequest(string(request))
		if err != nil || gotTask != task || got != ref || gotToken != token || string(request[:n]) != RequestID(task, ref) {
			t.Fatalf("%q reads as %q, %v, %q, %v", request, gotTask, got, gotToken, err)
		}
		if gotTask, got, gotToken, err = ParseRequest(RequestID(task, ref)); err != nil || gotTask != task || got != ref || gotToken != "" {
			t.Fatalf("%q, without a token, reads as %q, %v, %q, %v", RequestID(task, ref), gotTask, got, gotToken, err)
		}
	})
	for _, bad := range []string{"", "tasks", "tasks/1", "tasks/-1/2", "tasks/1/-2", "orders/1/2", "tasks/1/2/3", "tasks/4294967296/1"} {
		if c, err := ParseCause(bad); err == nil {
			t.Errorf("cause %q reads as %v", bad, c)
		}
	}
}

// TestHash checks that the hash covers the type and the value.
func TestHash(t *testing.T) {
	if got := Hash("waybill.task.started.v1", []byte("{}")); got != Hash("waybill.task.started.v1", []byte("{}")) || len(got) != 22 {
		t.Errorf("hash %q: want the same 22 characters each time", got)
	}
	if Hash("ab", []byte("c")) == Hash("a", []byte("bc")) {
		t.Error("type and value run together")
	}
}
