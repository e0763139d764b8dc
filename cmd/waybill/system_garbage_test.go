package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestGarbageOnEveryInbox: unusable records on every inbox are dead-lettered with a reason and counted. They affect no
// task.
func TestGarbageOnEveryInbox(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	t.Run(kafkatest.EmbeddedKind, func(t *testing.T) {
		u := startUpProcess(t, "--demo", "--metrics-listen", "127.0.0.1:0")
		garbage(t, &u.system, u.metricsURL(t), u.ledger())
		u.stop(t)
	})
	t.Run(kafkatest.KafkaKind, func(t *testing.T) {
		s := onBroker(t, kafkatest.Kafka(t), sampleWorkflow(t))
		scheduler := s.start(t, "scheduler", "--metrics-listen", "127.0.0.1:0", "--session-timeout", shortSession)
		s.start(t, "supervisor", "--session-timeout", shortSession)
		shop := openShop(t, nil)
		s.agents(t, shop)
		garbage(t, s, scheduler.metricsURL(t), shop.ledger)
	})
}

// rubbish is a record that no inbox can use, and its expected dead-letter reason.
type rubbish struct {
	record events.Record
	reason events.Reason
}

// hugeBytes is the size of a record that topics of the namespace accept, but no inbox does.
const hugeBytes = 2_000_000

// disturbedMost is how long a task of three steps may take while garbage is written. It allows for a busy machine.
const disturbedMost = time.Minute

func garbage(t *testing.T, s *system, metrics, ledger string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	producer, err := kafka.OpenProducer(s.config())
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	seen := observe(t, s)
	all := rubbishOf(s)
	orders := demo.Orders(len(all), 7, false)
	began := map[string]time.Time{}
	want := map[string]rubbish{} // key: the record's origin
	for i, o := range orders {
		sub := events.Submission{ID: o.ID, Workflow: "order", Input: o.Body}
		began[o.ID] = produceOne(ctx, t, producer, sub.Record(s.ns, "test")).Time
		produceOne(ctx, t, producer, events.Record{Topic: s.ns.Inbox(events.Tasks), Partition: -1, Key: []byte(o.ID), Value: rewritten(t, &sub)}) // the same submission
		at := produceOne(ctx, t, producer, all[i].record)
		all[i].record = at
		want[events.Origin(&at)] = all[i]
		if i == len(orders)/2 {
			for _, x := range append(huge(t, s, seen.inputs), hugeHeaders(t, s)...) {
				want[events.Origin(&x.record)] = x
			}
		}
	}
	seen.awaitEnded(t, len(orders))
	slowest := time.Duration(0)
	log := checkLog(t, s, testimony{seen.inputs, ledger, idsOf(orders)})
	for _, o := range orders {
		task := log.Task(o.ID)
		if task.State != events.StateProcessed {
			t.Errorf("order %s is %s: %v", o.ID, task.State, task.Error)
		}
		slowest = max(slowest, task.UpdatedAt.Sub(began[o.ID]))
	}
	if slowest > disturbedMost {
		t.Errorf("the slowest order took %v among the garbage, want at most %v", slowest, disturbedMost)
	}
	log.Tasks(func(task *events.Task) bool {
		if _, ours := began[task.ID]; !ours {
			t.Errorf("garbage became task %q", task.ID)
		}
		return true
	})
	dead := awaitDeadletters(ctx, t, s, func(dead []events.Record) bool { return len(dead) >= len(want) })
	checkDeadletters(t, dead, want)
	checkCounted(t, metrics, want)
	t.Logf("%d records of garbage dead-lettered and counted; %d orders in between, the slowest took %v", len(want), len(orders), slowest.Round(time.Millisecond))
}

// rewritten is a submission as another serializer writes it: other order of members, white space, floating-point
// numbers, escapes, and a complete_by that was computed again.
func rewritten(t *testing.T, s *events.Submission) []byte {
	t.Helper()
	var input map[string]any
	if err := json.Unmarshal(s.Input, &input); err != nil {
		t.Fatal(err)
	}
	body, err := json.MarshalIndent(input, "", "  ") // members sorted by name
	if err != nil {
		t.Fatal(err)
	}
	body = regexp.MustCompile(`(: -?\d+)(,?\n)`).ReplaceAll(body, []byte("$1.0$2"))
	by := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	return fmt.Appendf(nil, `{"workflow":"\u006frder","input":%s,"complete_by":%q,"id":%q}`, body, by, s.ID)
}

// produceOne writes a record and returns it with its partition, offset and time.
func produceOne(ctx context.Context, t *testing.T, p *kafka.Producer, r events.Record) events.Record {
	t.Helper()
	type ack struct {
		r   events.Record
		err error
	}
	acks := make(chan ack, 1)
	p.SendAsync(ctx, r, func(r events.Record, err error) { acks <- ack{r, err} })
	a := <-acks
	if a.err != nil {
		t.Fatal(a.err)
	}
	return a.r
}

// rubbishOf returns one record for each way to be unusable, except for size.
func rubbishOf(s *system) []rubbish {
	headers := func(pairs ...string) (hs []events.Header) {
		for i := 0; i < len(pairs); i += 2 {
			hs = append(hs, events.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return hs
	}
	var all []rubbish
	add := func(inbox events.Inbox, reason events.Reason, key, value string, hs ...events.Header) {
		r := events.Record{Topic: s.ns.Inbox(inbox), Partition: -1, Value: []byte(value), Headers: hs}
		if key != "" {
			r.Key = []byte(key)
		}
		all = append(all, rubbish{r, reason})
	}
	submission := `{"id":"g-1","workflow":"order","input":{}}`
	recovery := `{"task":"g-1","timer":1,"action":"hold"}`
	control := `{"task":"g-1","command":"cancel"}`
	asReply := headers(events.HeaderRequest, "g-1/charge/do/1/token", events.HeaderOutcome, "completed")
	asControl := headers(events.HeaderType, events.TypeControl, events.HeaderID, "c-1")
	asRecovery := headers(events.HeaderType, events.TypeRecovery)
	future := func(name string, hs ...events.Header) []events.Header {
		return append(headers(events.HeaderType, name), hs...)
	}

	add(events.Tasks, events.ReasonBadJSON, "", `{"id":`)
	add(events.Tasks, events.ReasonUnknownType, "g-1", submission, headers(events.HeaderType, "com.shop.order")...)
	add(events.Tasks, events.ReasonUnknownVersion, "g-1", submission, future("waybill.task.submitted.v9")...)
	add(events.Tasks, events.ReasonWrongKey, "g-2", submission)
	add(events.Tasks, events.ReasonUnknownWorkflow, "g-1", `{"id":"g-1","workflow":"no-such"}`)
	add(events.Tasks, events.ReasonBadReplyTo, "g-1", `{"id":"g-1","workflow":"order","reply_to":"`+s.ns.Events()+`"}`)
	add(events.Tasks, events.ReasonBadReplyTo, "g-1", `{"id":"g-1","workflow":"order","reply_to":"no topic!"}`)
	add(events.Tasks, events.ReasonBadReplyTo, "g-1", `{"id":"g-1","workflow":"order","reply_to":"`+strings.Repeat("x", events.MaxReplyToBytes+1)+`"}`)
	all = append(all, rubbish{events.Record{Topic: s.ns.Inbox(events.Tasks), Value: []byte(submission),
		Partition: (events.Partition([]byte("g-1"), s.partitions) + 1) % s.partitions, Headers: headers(events.HeaderHop, "0/0")}, events.ReasonMisplaced})

	add(events.Tasks, events.ReasonBadJSON, "", `{"id":"g-\ud83d","workflow":"order","input":{}}`)
	add(events.Tasks, events.ReasonBadJSON, "", `{"id":"g-1","workflow":"order","labels":{"\ud83d":"a"}}`)
	add(events.Tasks, events.ReasonBadJSON, "", `{"id":"g-1","workflow":"order","input":{"a":[{"b":1,"b":2}]}}`)
	add(events.Tasks, events.ReasonBadField, "", `{"id":"g-1","workflow":"order","complete_by":"0001-06-01T00:00:00Z"}`)
	add(events.Tasks, events.ReasonBadField, "", `{"id":"g-1","workflow":"order","complete_by":""}`)
	add(events.Replies, events.ReasonBadJSON, "g-1", `{"ref":"\ud83d"}`, asReply...)
	add(events.Controls, events.ReasonBadJSON, "g-1", `{"task":"g-1","command":"cancel","why":"\udfff"}`, asControl...)
	add(events.Recoveries, events.ReasonBadJSON, "g-1", `{"task":"g-1","timer":1,"timer":2,"action":"hold"}`, asRecovery...)

	add(events.Replies, events.ReasonBadJSON, "g-1", `{"id":`, asReply...)
	add(events.Replies, events.ReasonUnknownType, "g-1", `{}`, future("com.shop.reply", asReply...)...)
	add(events.Replies, events.ReasonUnknownVersion, "g-1", `{}`, future("waybill.reply.v9", asReply...)...)
	add(events.Replies, events.ReasonWrongKey, "g-2", `{}`, asReply...)
	add(events.Replies, events.ReasonUnknownTask, "g-1", `{}`, asReply...)
	add(events.Replies, events.ReasonBadToken, "g-1", `{}`, headers(events.HeaderRequest, "g-1/charge/do/1", events.HeaderOutcome, "completed")...)

	add(events.Recoveries, events.ReasonBadJSON, "g-1", `{"task":`, asRecovery...)
	add(events.Recoveries, events.ReasonUnknownType, "g-1", recovery, headers(events.HeaderType, "com.shop.recovery")...)
	add(events.Recoveries, events.ReasonUnknownVersion, "g-1", recovery, headers(events.HeaderType, "waybill.recovery.v9")...)
	add(events.Recoveries, events.ReasonWrongKey, "g-2", recovery, asRecovery...)

	add(events.Controls, events.ReasonBadJSON, "g-1", `{"task":`, asControl...)
	add(events.Controls, events.ReasonUnknownType, "g-1", control, headers(events.HeaderType, "com.shop.control", events.HeaderID, "c-1")...)
	add(events.Controls, events.ReasonUnknownVersion, "g-1", control, headers(events.HeaderType, "waybill.control.v9", events.HeaderID, "c-1")...)
	add(events.Controls, events.ReasonWrongKey, "g-2", control, asControl...)

	noType := [events.Inboxes]events.Reason{events.Tasks: events.ReasonBadJSON, events.Replies: events.ReasonMissingHeader,
		events.Recoveries: events.ReasonUnknownType, events.Controls: events.ReasonUnknownType, events.Signals: events.ReasonBadJSON}
	for inbox := range events.Inboxes {
		add(inbox, events.ReasonNull, "g-1", "")
		add(inbox, noType[inbox], "", "\xff\x00\xfe no text, no headers, no key")
		all[len(all)-2].record.Value = nil
	}
	return all
}

// huge writes 2 MB to each inbox with kcat, since this project's clients refuse to.
func huge(t *testing.T, s *system, seen *inboxes) []rubbish {
	t.Helper()
	var all []rubbish
	for _, topic := range s.ns.InboxTopics() {
		value := make([]byte, hugeBytes)
		rand.Read(value) // never fails; random bytes are incompressible
		s.broker.Kcat(t, "", "-P", "-t", topic, "-p", "0", "-X", "message.max.bytes=2090000", writeFile(t, "huge", value))
		all = append(all, rubbish{seen.awaitValue(t, topic, value), events.ReasonTooLarge})
	}
	return all
}

// hugeHeaders writes records to each inbox that would be usable but for the size of their headers. They have no key and
// are in the wrong partition, so they would have to be forwarded, and the producer can't write them.
func hugeHeaders(t *testing.T, s *system) []rubbish {
	t.Helper()
	ref := events.RequestRef{Step: "charge", Kind: events.Do, Attempt: 1}
	control := &events.Control{Task: "g-1", Command: events.Cancel, By: events.By{Who: "op", RequestID: "c-1"}}
	usable := []events.Record{
		(&events.Submission{ID: "g-1", Workflow: "order", Input: []byte("{}")}).Record(s.ns, "test"),
		(&events.Reply{Task: "g-1", Ref: ref, Token: "token", Outcome: events.Completed}).Record(s.ns, "test"),
		(&events.Recovery{Task: "g-1", Timer: 1, Action: events.ActionHold}).Record(s.ns, "test", -1),
		control.Record(s.ns, "test"),
	}
	random := make([]byte, 1_010_000) // just above a producer's default limit
	rand.Read(random)                 // never fails
	var all []rubbish
	for _, header := range [][]byte{random, make([]byte, 1_900_000)} {
		for _, r := range usable {
			r.Key, r.Partition = nil, (events.Partition([]byte("g-1"), s.partitions)+1)%s.partitions
			r.Headers = append(slices.Clone(r.Headers), events.Header{Key: "x-own", Value: header})
			all = append(all, rubbish{s.broker.Produce(t, r), events.ReasonTooLarge})
		}
	}
	return all
}

// awaitDeadletters returns the dead letters once enough returns true for them.
func awaitDeadletters(ctx context.Context, t *testing.T, s *system, enough func([]events.Record) bool) []events.Record {
	t.Helper()
	r, err := logreader.OpenRestorer(s.config(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tick := time.NewTicker(tailEvery)
	defer tick.Stop()
	for {
		var dead []events.Record
		_, err := r.ReadAll(ctx, s.ns.Deadletters(), logreader.Range{}, func(rs []events.Record) error {
			dead = append(dead, rs...)
			return nil
		}, nil)
		switch {
		case err != nil:
			t.Fatalf("wait for more than %d dead letters: %v", len(dead), err)
		case enough(dead):
			return dead
		}
		<-tick.C // poll, as the tools do
	}
}

func checkDeadletters(t *testing.T, dead []events.Record, want map[string]rubbish) {
	t.Helper()
	open := maps.Clone(want)
	for i := range dead {
		header := func(name string) string {
			v, _ := dead[i].Header(name)
			return v
		}
		origin := header(events.HeaderOrigin)
		x, ok := open[origin]
		if !ok {
			t.Errorf("dead letter of %s (%s: %s): no garbage of ours, or twice", origin, header(events.HeaderReason), header(events.HeaderDetail))
			continue
		}
		delete(open, origin)
		if got := header(events.HeaderReason); got != string(x.reason) {
			t.Errorf("%s: reason %s (%s), want %s", origin, got, header(events.HeaderDetail), x.reason)
		}
		kept := x.record.Value[:min(len(x.record.Value), events.MaxDeadletterBytes)]
		sum := sha256.Sum256(x.record.Value)
		if !bytes.Equal(dead[i].Value, kept) || header(events.HeaderSize) != strconv.Itoa(len(x.record.Value)) || header(events.HeaderSHA256) != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: %d bytes kept of %d, size %s, sha256 %s: want %d bytes, %d, %x", origin, len(dead[i].Value), len(x.record.Value),
				header(events.HeaderSize), header(events.HeaderSHA256), len(kept), len(x.record.Value), sum)
		}
		if string(dead[i].Key) != string(x.record.Key) {
			t.Errorf("%s: key %q, want %q", origin, dead[i].Key, x.record.Key)
		}
	}
	for origin, x := range open {
		t.Errorf("%s: not dead-lettered, want %s", origin, x.reason)
	}
}

var deadletterMetric = regexp.MustCompile(`(?m)^waybill_deadletters_total\{reason="([a-z_]+)"\} (\d+)$`)

// checkCounted compares the counters on the metrics page with the records that were written.
func checkCounted(t *testing.T, url string, want map[string]rubbish) {
	t.Helper()
	counts := map[string]int{}
	for _, x := range want {
		counts[string(x.reason)]++
	}
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, m := range deadletterMetric.FindAllSubmatch(page, -1) {
		n, err := strconv.Atoi(string(m[2]))
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 { // counters of all reasons exist from the start, at 0
			got[string(m[1])] = n
		}
	}
	if !maps.Equal(got, counts) {
		t.Errorf("dead letters counted: %v, want %v", got, counts)
	}
}
