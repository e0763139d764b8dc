package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestKcatSubmitsToUp submits to `waybill up` with kcat: bare JSON, with and without a key, and with kcat's own
// partitioner. It reads the notifications in reply_to with kcat.
func TestKcatSubmitsToUp(t *testing.T) {
	suite.NeedAll(t, "kcat")
	t.Parallel()
	u := startUpProcess(t, "--demo")
	seen := observe(t, &u.system)
	const replies = "shop.replies" // `up` creates it automatically
	kcatSubmits(t, &u.system, "a", []string{replies})
	awaitTopic(t, &u.system, replies)
	wantTold(t, &u.system, replies, "a", replies)
	checkLog(t, &u.system, testimony{seen.inputs, u.ledger(), kcatIDs("a", replies)})
	u.stop(t)
}

// TestBadReplyToDelaysNobody does the same on Apache Kafka, without automatic creation of topics. One reply_to is good.
// One doesn't exist, one is forbidden, and one accepts only tiny records: their notifications are dead-lettered, with
// an alert for each topic. One never acknowledges, and is given up after 30 s. No other task is delayed.
func TestBadReplyToDelaysNobody(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel() // it mostly waits
	b := kafkatest.FromCluster(kafkatest.KafkaNodes(t, 1, kafkatest.Authorizer()))
	s := onBroker(t, b, sampleWorkflow(t))
	const good, missing, forbidden, tiny, silent = "shop.replies", "shop.missing", "shop.forbidden", "shop.tiny", "shop.silent"
	b.CreateTopics(t, 2, good, forbidden)
	b.CreateTopicsWith(t, 1, map[string]string{"max.message.bytes": "120"}, tiny)
	b.CreateTopicsWith(t, 1, map[string]string{"min.insync.replicas": "2"}, silent) // with one replica, writes are never acknowledged
	b.Forbid(t, forbidden)
	s.start(t, "scheduler", "--session-timeout", shortSession)
	s.start(t, "supervisor", "--session-timeout", shortSession)
	shop := openShop(t, nil)
	s.agents(t, shop)
	seen := observe(t, s)

	kcatSubmits(t, s, "warm", []string{good})
	wantTold(t, s, good, "warm", good)
	alone := kcatSubmits(t, s, "alone", []string{good})
	took := wantTold(t, s, good, "alone", good).Sub(alone)
	all := []string{good, missing, forbidden, tiny, silent}
	mixed := kcatSubmits(t, s, "mixed", all)
	tookMixed := wantTold(t, s, good, "mixed", all...).Sub(mixed)
	t.Logf("the last of the good reply_to was told after %v without the bad ones, %v beside them", took.Round(time.Millisecond), tookMixed.Round(time.Millisecond))
	if most := max(25*time.Second, 4*took); tookMixed > most {
		t.Errorf("beside bad ones a good reply_to is told after %v, want at most %v", tookMixed, most)
	}
	acked := slices.Concat(kcatIDs("warm", good), kcatIDs("alone", good), kcatIDs("mixed", all...))
	log := checkLog(t, s, testimony{seen.inputs, shop.ledger, acked})
	log.Tasks(func(task *events.Task) bool {
		if task.State != events.StateProcessed {
			t.Errorf("order %s is %s: %v", task.ID, task.State, task.Error)
		}
		return true
	})
	wantUndelivered(t, s, missing, forbidden, tiny)
	if topics := b.Kcat(t, "", "-L"); strings.Contains(topics, missing) {
		t.Errorf("%s was created", missing)
	}
}

// kcatOrders is the number of orders that kcat submits for each reply_to. Every second one has a key.
const kcatOrders = 20

// kcatSubmits produces orders for each reply_to, and returns the time at which it began.
func kcatSubmits(t *testing.T, s *system, name string, replyTo []string) time.Time {
	t.Helper()
	began := time.Now()
	var keyed, keyless strings.Builder
	for i, o := range demo.Orders(kcatOrders*len(replyTo), 2, false) {
		id := fmt.Sprintf("%s-%d", name, i)
		line := fmt.Sprintf(`{"id":%q,"workflow":"order","input":%s,"reply_to":%q}`, id, o.Body, replyTo[i/2%len(replyTo)])
		if i%2 == 0 {
			fmt.Fprintf(&keyed, "%s\t%s\n", id, line)
		} else {
			fmt.Fprintln(&keyless, line)
		}
	}
	s.broker.Kcat(t, keyed.String(), "-P", "-t", s.ns.Inbox(events.Tasks), "-K", "\t")
	s.broker.Kcat(t, keyless.String(), "-P", "-t", s.ns.Inbox(events.Tasks))
	return began
}

// kcatIDs returns the ids of the orders that kcatSubmits submits.
func kcatIDs(name string, replyTo ...string) []string {
	ids := make([]string, kcatOrders*len(replyTo))
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return ids
}

// wantTold waits until kcat has read from a reply_to, for each of its orders, that it was received and then processed.
// It returns the time of the last notification. The orders are those of kcatSubmits, spread over all reply_to topics.
func wantTold(t *testing.T, s *system, replyTo, name string, all ...string) (last time.Time) {
	t.Helper()
	want := map[string][]string{}
	for i := range kcatOrders * len(all) {
		if all[i/2%len(all)] == replyTo {
			want[fmt.Sprintf("%s-%d", name, i)] = []string{events.StatusReceived, string(events.StateProcessed)}
		}
	}
	got := map[string][]string{}
	told := func() bool {
		clear(got)
		for _, r := range s.broker.ReadTopic(t, replyTo) {
			n, err := events.DecodeNotification(&r)
			if err != nil {
				t.Fatalf("%s: %v", r.Value, err)
			}
			if n.Task != string(r.Key) {
				t.Errorf("key %q, task %q", r.Key, n.Task)
			}
			if strings.HasPrefix(n.Task, name+"-") {
				got[n.Task] = append(got[n.Task], n.Status)
				last = r.Time
			}
		}
		n := 0
		for _, statuses := range got {
			n += len(statuses)
		}
		return n >= 2*len(want)
	}
	deadline := time.After(suite.Patience)
	for tick := time.NewTicker(100 * time.Millisecond); !told(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after %v %s was told %v, want %v", suite.Patience, replyTo, got, want)
		}
	}
	for id := range want {
		if !slices.Equal(got[id], want[id]) {
			t.Errorf("of %s %s was told %v, want %v", id, replyTo, got[id], want[id])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s was told of %d orders, want %d", replyTo, len(got), len(want))
	}
	return last
}

// awaitTopic waits until the topic exists.
func awaitTopic(t *testing.T, s *system, topic string) {
	t.Helper()
	admin, err := kafkaadmin.Open(s.config())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	deadline := time.After(suite.Patience)
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		if _, ok, err := admin.TopicPartitions(t.Context(), topic); err != nil {
			t.Fatal(err)
		} else if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("no topic %s", topic)
		}
	}
}

// wantUndelivered waits until all notifications for these topics are dead letters, and checks that alerts name each
// topic.
func wantUndelivered(t *testing.T, s *system, topics ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	const each = 2 * kcatOrders // received, processed
	var told map[string]map[string]bool
	awaitDeadletters(ctx, t, s, func(dead []events.Record) bool {
		told = undelivered(t, s, dead)
		for _, topic := range topics {
			if len(told[topic]) < each {
				return false
			}
		}
		return true
	})
	alerts := s.waybill(t, exitOK, "alerts", "-o", "jsonl")
	for _, topic := range topics {
		n := strings.Count(alerts, `reply_to \"`+topic+`\"`)
		if n < 1 || n > 3 {
			t.Errorf("%d alerts name %s, want one for each while", n, topic)
		}
		t.Logf("%s: %d dead letters, %d alerts", topic, len(told[topic]), n)
	}
}

var replyToOfDetail = regexp.MustCompile(`^reply_to "([^"]+)"`)

// undelivered groups dead letters by the topic that they were meant for. All must be notifications.
func undelivered(t *testing.T, s *system, dead []events.Record) map[string]map[string]bool {
	t.Helper()
	told := map[string]map[string]bool{}
	for i := range dead {
		reason, _ := dead[i].Header(events.HeaderReason)
		origin, _ := dead[i].Header(events.HeaderOrigin)
		detail, _ := dead[i].Header(events.HeaderDetail)
		n, err := events.DecodeNotification(&dead[i])
		topic := replyToOfDetail.FindStringSubmatch(detail)
		if err != nil || reason != string(events.ReasonUndeliverable) || topic == nil || !strings.HasPrefix(origin, s.ns.Notifications()+"/") {
			t.Fatalf("dead letter of %s: %s, %s (%v): %s", origin, reason, detail, err, dead[i].Value)
		}
		if told[topic[1]] == nil {
			told[topic[1]] = map[string]bool{}
		}
		told[topic[1]][n.Task+" "+n.Status] = true
	}
	return told
}
