package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// writers starts a service that returns text of the requested size. Calls with a gate wait until all of them have
// arrived, so that their replies are sent together.
func writers(t *testing.T, together int) *httptest.Server {
	t.Helper()
	var gate sync.WaitGroup
	gate.Add(together)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var order struct{ Bytes, Gate int }
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if order.Gate > 0 {
			gate.Done()
			gate.Wait()
		}
		text := make([]byte, order.Bytes/2)
		_, _ = rand.Read(text)
		_ = json.NewEncoder(w).Encode(map[string]string{"text": hex.EncodeToString(text)})
	}))
	t.Cleanup(server.Close)
	return server
}

// TestOutputsThatFitAreDeliveredOneByOne: replies and reply_to accept batches of up to 100,000 bytes. Outputs of 40 KB
// each fit, so their tasks end and their notifications are delivered, though several in one batch don't fit. An output
// of 120 KB doesn't fit reply_to: its notification is a dead letter, and is delivered once the topic accepts more and
// it is redriven.
func TestOutputsThatFitAreDeliveredOneByOne(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		const bound, together = "100000", 4
		file, err := filepath.Abs("testdata/large.yaml")
		if err != nil {
			t.Fatal(err)
		}
		s := onBroker(t, b, file)
		replyTo := string(s.ns[:len(s.ns)-1]) + "-received"
		b.CreateTopicsWith(t, 1, map[string]string{"max.message.bytes": bound}, replyTo)
		replies := s.ns.Inbox(events.Replies)
		b.SetTopic(t, replies, "max.message.bytes", bound)
		service := writers(t, together)
		s.start(t, "scheduler", "--workers", "1")
		s.start(t, "supervisor")
		s.start(t, "agent", "http", "--agent", "writer", "--url", service.URL+"/{operation}")
		p, err := kafka.OpenProducer(s.config())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		submit := func(id string, size, gate int) {
			produceOne(t.Context(), t, p, (&events.Submission{ID: id, Workflow: "large", ReplyTo: replyTo, Input: fmt.Appendf(nil, `{"bytes":%d,"gate":%d}`, size, gate)}).Record(s.ns, "shop"))
		}
		var ids []string
		for i := 0; len(ids) < together; i++ { // their replies share a partition
			if id := fmt.Sprintf("l-%d", i); events.Partition([]byte(id), s.partitions) == 0 {
				ids = append(ids, id)
				submit(id, 40_000, 1)
			}
		}
		for _, id := range ids {
			s.waybill(t, exitOK, "task", "wait", id, "--timeout", "2m")
		}
		awaitNotifications(t, s, replyTo, ids...)
		if n := s.waybill(t, exitOK, "deadletters", "-o", "jsonl"); n != "" {
			t.Errorf("there are dead letters: %s", n)
		}

		b.SetTopic(t, replies, "max.message.bytes", "1000000")
		b.AwaitRecordSize(t, replies, s.partitions, 200_000)
		submit("larger", 120_000, 0)
		s.waybill(t, exitOK, "task", "wait", "larger", "--timeout", "2m")
		awaitDeadletters(t.Context(), t, s, func(dead []events.Record) bool { return len(dead) == 1 })
		b.SetTopic(t, replyTo, "max.message.bytes", "1000000")
		b.AwaitRecordSize(t, replyTo, 1, 200_000)
		s.waybill(t, exitOK, "deadletters", "redrive", "--since", "1h", "--execute")
		awaitNotifications(t, s, replyTo, "larger")
	})
}

// awaitNotifications waits until reply_to has a processed notification of each task, with its output.
func awaitNotifications(t *testing.T, s *system, topic string, ids ...string) {
	t.Helper()
	admin, err := kafkaadmin.Open(s.config())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for deadline := time.Now().Add(suite.Patience); ; {
		received := map[string]int{}
		if err := admin.ReadCompacted(t.Context(), topic, func(r events.Record) error {
			n, err := events.DecodeNotification(&r)
			if err == nil && n.Status == string(events.StateProcessed) {
				received[n.Task] = len(n.Output)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		missing := false
		for _, id := range ids {
			missing = missing || received[id] < 40_000
		}
		if !missing {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s received %v, want %v", topic, received, ids)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
