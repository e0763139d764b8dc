package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
	"github.com/waybill-run/waybill/internal/verify"
)

const (
	// replyTolerance is how long after complete-by a reply may be appended if it was sent in time (P17), on a broker
	// that appends at once.
	replyTolerance = 250 * time.Millisecond
	// probeEvery is the interval at which the broker's append latency is measured.
	probeEvery = 100 * time.Millisecond
	// tornWithin is how long before or after a kill of the embedded broker a torn transaction may have been open. A
	// producer may write for a third of its transaction timeout.
	tornWithin = groupmember.DefaultTransactionTimeout / 3
	// allFaults is more faults than a checker can report. One torn transaction may break promises of as many tasks as
	// it has records.
	allFaults = 1_000_000
	tornTold  = 10 // limit of logged faults from torn transactions
)

// topicPart is a partition of a topic.
type topicPart struct {
	topic     string
	partition int32
}

// inboxes follows the inbox topics and keeps their records, since inboxes are trimmed once consumed. It keeps following
// when the broker is killed and restarted.
type inboxes struct {
	mu      sync.Mutex
	records []events.Record
	next    map[topicPart]int64
	gaps    int // ranges that were trimmed before they were read
	err     error
	moved   chan struct{}
	slowest time.Duration // longest latency of a probe record, from send to acknowledgement
}

// followInboxes follows the inboxes of a system until the end of the test.
func followInboxes(t *testing.T, s *system) *inboxes {
	t.Helper()
	in := &inboxes{next: map[topicPart]int64{}, moved: make(chan struct{})}
	follow(t, logreader.FollowerConfig{Config: s.config(), Group: string(s.ns) + "inboxes-" + uuid.NewString(), Topics: s.ns.InboxTopics(),
		Partitions: s.partitions, Start: in.start}, in.take, in.failed)
	if s.broker.Kind == kafkatest.KafkaKind { // the embedded broker keeps the producer's timestamp
		in.probe(t, s)
	}
	return in
}

// probe measures the broker's append latency until the end of the test. A reply sent in time may be appended later by
// as much; on a busy machine that is up to 600 ms.
func (in *inboxes) probe(t *testing.T, s *system) {
	t.Helper()
	topic := string(s.ns) + "probe"
	s.broker.CreateTopics(t, 1, topic)
	producer, err := kafka.OpenProducer(s.config())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var probing sync.WaitGroup
	probing.Go(func() {
		for tick := time.NewTicker(probeEvery); ctx.Err() == nil; {
			sent := time.Now()
			producer.SendAsync(ctx, events.Record{Topic: topic, Value: []byte("probe")}, func(_ events.Record, err error) {
				in.mu.Lock()
				defer in.mu.Unlock()
				if err == nil {
					in.slowest = max(in.slowest, time.Since(sent))
				}
			})
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		stop()
		probing.Wait()
		producer.Close()
	})
}

// follow reads topics until the end of the test. It survives restarts of the broker.
func follow(t *testing.T, cfg logreader.FollowerConfig, take func([]events.Record), failed func(error)) {
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { kafkatest.Follow(ctx, cfg, take, failed) })
	t.Cleanup(func() {
		stop()
		following.Wait()
	})
}

func (in *inboxes) start(_ context.Context, topic string, p int32) (int64, bool, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.next[topicPart{topic, p}], true, nil
}

func (in *inboxes) take(records []events.Record) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, r := range records {
		at := topicPart{r.Topic, r.Partition}
		if r.Offset < in.next[at] {
			continue // read again after a rebalance
		}
		in.next[at] = r.Offset + 1
		in.records = append(in.records, r)
	}
	in.wake()
}

// failed records why reading restarts. If records were trimmed meanwhile, it continues at the first that is left, and
// counts a gap.
func (in *inboxes) failed(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.err = err
	var trimmed *logreader.OffsetRangeError
	if errors.As(err, &trimmed) {
		in.gaps++
		in.next[topicPart{trimmed.Topic, trimmed.Partition}] = trimmed.Start
		in.wake()
	}
}

func (in *inboxes) wake() {
	close(in.moved)
	in.moved = make(chan struct{})
}

// awaitValue waits for a record with the value in the topic, and returns it. Offsets aren't known in advance: the
// record is written by another program, and others write concurrently.
func (in *inboxes) awaitValue(t *testing.T, topic string, value []byte) events.Record {
	t.Helper()
	deadline := time.After(suite.Patience)
	for {
		in.mu.Lock()
		i := slices.IndexFunc(in.records, func(r events.Record) bool { return r.Topic == topic && bytes.Equal(r.Value, value) })
		var found events.Record
		if i >= 0 {
			found = in.records[i]
		}
		moved, err := in.moved, in.err
		in.mu.Unlock()
		if i >= 0 {
			return found
		}
		select {
		case <-moved:
		case <-deadline:
			t.Fatalf("waited %s for a record of %d bytes in %s; reading: %v", suite.Patience, len(value), topic, err)
		}
	}
}

// awaitCauses waits until every inbox record that an event names as its cause was read.
func (in *inboxes) awaitCauses(t *testing.T, ns events.Namespace, log []events.Record) {
	t.Helper()
	want := map[topicPart]int64{}
	for i := range log {
		if e, err := events.DecodeEnvelope(&log[i]); err == nil && e.Task != "" {
			at := topicPart{ns.Inbox(e.Cause.Inbox), e.Cause.Partition}
			want[at] = max(want[at], e.Cause.Offset+1)
		}
	}
	deadline := time.After(suite.Patience)
	for {
		in.mu.Lock()
		missing := slices.ContainsFunc(ns.InboxTopics(), func(topic string) bool {
			for at, next := range want {
				if at.topic == topic && in.next[at] < next {
					return true
				}
			}
			return false
		})
		moved, err := in.moved, in.err
		in.mu.Unlock()
		if !missing {
			return
		}
		select {
		case <-moved:
		case <-deadline:
			t.Fatalf("waited %s for what led to the events; reading: %v", suite.Patience, err)
		}
	}
}

// testimony is what a test knows in addition to the log.
type testimony struct {
	inputs *inboxes
	ledger string   // path of the services' ledger
	acked  []string // ids of tasks whose submission was acknowledged
}

// evidence is a checker and all records that it was fed.
type evidence struct {
	*verify.Checker
	s   *system
	fed []events.Record
}

func (e *evidence) take(records []events.Record, fn func(*events.Record)) {
	for i := range records {
		fn(&records[i])
	}
	e.fed = append(e.fed, records...)
}

// collect feeds a checker all records of a system and all that the test knows. It reads consumed positions first, and
// topics that are written together with events after the events. A record that is then missing was never written.
func collect(t *testing.T, s *system, log func() []events.Record, said testimony) *evidence {
	t.Helper()
	said.inputs.mu.Lock()
	slowest := said.inputs.slowest
	said.inputs.mu.Unlock()
	e := &evidence{s: s, Checker: verify.New(verify.Options{Namespace: s.ns, Partitions: s.partitions, Keep: true, Inputs: true, Ledger: true,
		Deadletters: true, Alerts: true, Requests: true, Faults: allFaults, ReplyTolerance: replyTolerance + slowest})}
	s.consumed(t, e.Checker)
	records := log()
	said.inputs.awaitCauses(t, s.ns, records)
	said.inputs.mu.Lock()
	e.take(said.inputs.records, e.Input)
	said.inputs.mu.Unlock()
	e.take(records, func(r *events.Record) { e.Event(r) })

	agents := map[string]bool{}
	e.Tasks(func(task *events.Task) bool {
		for i := range task.Plan.Steps {
			if agent := task.Plan.Steps[i].Agent; agent != "" { // a wait has none
				agents[agent] = true
			}
			if u := task.Plan.Steps[i].Undo; u != nil && u.Agent != "" { // a withdrawal of a child has none
				agents[u.Agent] = true
			}
		}
		return true
	})
	for name := range agents {
		e.take(s.broker.ReadTopic(t, s.ns.Requests(name)), e.Request)
	}
	e.take(s.broker.ReadTopic(t, s.ns.Alerts()), e.Alert)
	e.take(awaitDeadletters(t.Context(), t, s, func([]events.Record) bool { return true }), e.Deadletter)
	ledger, err := demo.ReadLedger(said.ledger)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ledger {
		if x, ok := ledger[i].Effect(); ok {
			e.Effect(x)
		}
	}
	for _, id := range said.acked {
		e.Acknowledged(id, time.Now())
	}
	return e
}

// consumed sets the offsets up to which the schedulers have consumed the inboxes. They may be slightly too low, since
// end offsets are read before lags.
func (s *system) consumed(t *testing.T, c *verify.Checker) {
	t.Helper()
	admin, err := kafkaadmin.Open(s.config())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ends := map[events.Inbox]map[int32]int64{}
	for inbox := range events.Inboxes {
		if ends[inbox], err = admin.EndOffsets(t.Context(), s.ns.Inbox(inbox)); err != nil {
			t.Fatal(err)
		}
	}
	lags, err := admin.GroupLag(t.Context(), s.ns.SchedulerGroup())
	if err != nil {
		t.Fatal(err)
	}
	for inbox, of := range ends {
		for p, end := range of {
			if lag, ok := lags[s.ns.Inbox(inbox)][p]; ok {
				c.Consumed(inbox, p, end-lag)
			}
		}
	}
}

// verdict fails the test for each fault, except for known limits of the embedded broker.
func (e *evidence) verdict(t *testing.T, said testimony) {
	t.Helper()
	said.inputs.mu.Lock()
	defer said.inputs.mu.Unlock()
	report := e.Finish(time.Now())
	torn := 0
	for _, f := range report.Faults {
		switch {
		case e.torn(f):
			if torn++; torn <= tornTold {
				t.Logf("torn by a kill of the broker: %s", f)
			}
		case said.inputs.gaps > 0 && strings.Contains(f.What, "and there is no such record"): // trimmed before it was read
		default:
			t.Error(f)
		}
	}
	if report.Inputs == 0 || report.Requests == 0 || report.Effects == 0 || len(said.acked) == 0 {
		t.Errorf("something was not fed, and the verdict says less than it seems to: %s", report)
	}
	report.Faults = nil
	t.Logf("%s; the latest reply by %s, while the broker took up to %s; %d stretches of inboxes not seen, %d faults torn by kills",
		report, report.LatestReply, said.inputs.slowest, said.inputs.gaps, torn)
	tally.Add(t, "events of whole systems, with all that led to them and came of them, held against the promises", report.Events)
}

// tornFaults are texts of the faults that a torn transaction can cause: part of its records is there, part is lost.
// Faults in the events themselves aren't among them. If only the request of an attempt is left, the attempt is started
// again with another complete-by, and so has two.
var tornFaults = []string{"has no request", "is of no attempt in the log", "was written twice", "is to be complete by", "there is no dead letter of it",
	"no alert tells of it", "was not forwarded"}

// torn reports whether a fault is a known limit of the embedded broker: the end of a transaction isn't atomic under
// kill -9. This holds only for tornFaults, and only close to a kill.
func (e *evidence) torn(f verify.Fault) bool {
	if e.s.broker.Kind != kafkatest.EmbeddedKind || !slices.ContainsFunc(tornFaults, func(s string) bool { return strings.Contains(f.What, s) }) {
		return false
	}
	return slices.ContainsFunc(e.fed, func(r events.Record) bool {
		named := f.Topic != "" && r.Topic == string(e.s.ns)+f.Topic && r.Partition == f.Partition && r.Offset == f.Offset ||
			f.Topic == "" && r.Topic == e.s.ns.Events() && string(r.Key) == f.Task
		return named && slices.ContainsFunc(e.s.kills, func(kill time.Time) bool { return r.Time.Sub(kill).Abs() < tornWithin })
	})
}
