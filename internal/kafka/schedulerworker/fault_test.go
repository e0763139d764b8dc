package schedulerworker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// ice freezes a client as SIGSTOP does: until the thaw, its requests wait, and it receives no responses.
type ice struct {
	mu     sync.Mutex
	thawed chan struct{} // closed: not frozen
	atKey  int16         // freezes before it sends a request with this key; -1: never
	froze  chan struct{} // closed when atKey froze it
}

func newIce() *ice {
	i := &ice{thawed: make(chan struct{}), atKey: -1, froze: make(chan struct{})}
	close(i.thawed)
	return i
}

func (i *ice) freeze() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.thawed = make(chan struct{})
}

func (i *ice) thaw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-i.thawed:
	default:
		close(i.thawed)
	}
}

func (i *ice) freezeBefore(key kmsg.Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.atKey = int16(key)
}

func (i *ice) wait(request []byte) {
	i.mu.Lock()
	if len(request) > 6 && int16(binary.BigEndian.Uint16(request[4:])) == i.atKey {
		i.atKey, i.thawed = -1, make(chan struct{})
		close(i.froze)
	}
	thawed := i.thawed
	i.mu.Unlock()
	<-thawed
}

func (i *ice) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	i.wait(nil)
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &frozenConn{conn, i}, nil
}

type frozenConn struct {
	net.Conn
	ice *ice
}

func (c *frozenConn) Write(b []byte) (int, error) {
	c.ice.wait(b)
	return c.Conn.Write(b)
}

func (c *frozenConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.ice.wait(nil)
	return n, err
}

// owner is a worker that restores a partition before it resumes it, as the scheduler does, and writes an event for each
// input.
type owner struct {
	site      *site
	worker    *schedulerworker.Worker
	restorer  *logreader.Restorer
	restored  map[int32]uint64
	reflected []events.Record // inputs of committed transactions
}

func (s *site) open(t testing.TB, cfg schedulerworker.Config) *owner {
	t.Helper()
	r, err := logreader.OpenRestorer(cfg.Config, &logreader.RestoreListener{
		Fenced:    func(id string) { t.Logf("fenced %s", id) },
		NotFenced: func(topic string, p int32, err error) { t.Errorf("%s/%d not fenced: %v", topic, p, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return &owner{site: s, worker: openWorker(t, cfg), restorer: r, restored: map[int32]uint64{}}
}

// turn is one iteration of the loop: poll, restore, commit.
func (o *owner) turn(ctx context.Context) error {
	rs, err := o.worker.Poll(ctx)
	if err != nil {
		return err
	}
	for p, n := range o.worker.Assigned() {
		if o.restored[p] == n {
			continue
		}
		if _, err := o.restorer.Read(ctx, o.site.NS.Events(), p, 0, func([]events.Record) error { return nil }); err != nil {
			return err
		}
		o.worker.Resume(p, inboxgate.PausedForRestore)
		o.restored[p] = n
	}
	if len(rs) == 0 {
		return nil
	}
	committed, err := o.worker.Commit(ctx, o.site.Reflect(rs))
	if committed {
		o.reflected = append(o.reflected, rs...)
	}
	return err
}

func (o *owner) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(suite.Patience)
	for !ok() {
		if err := o.turn(t.Context()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in time; assigned %v, reflected %d", what, o.worker.Assigned(), len(o.reflected))
		}
	}
}

// TestFrozenWorkerDoesNotCommit freezes a worker for longer than its session while another takes over. When the first
// continues, its transaction must not commit, at whatever point it was frozen.
func TestFrozenWorkerDoesNotCommit(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	for _, at := range []struct {
		name string
		key  kmsg.Key
	}{
		{"before the commit", -1},
		{"before its output is sent", kmsg.Produce},
		{"before its positions are sent", kmsg.TxnOffsetCommit},
		{"before the end is sent", kmsg.EndTxn},
	} {
		t.Run(at.name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				i := newIce()
				defer i.thaw()
				cfg := s.worker("frozen")
				cfg.Dial = i.dial
				cfg.TransactionTimeout = 10 * time.Minute // the takeover doesn't wait for its end
				frozen := openWorker(t, cfg)
				untilAssigned(t, frozen, testPartitions)
				cl := s.Outside(t)
				kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[3], 4, "a"))
				polled := poll(t, frozen)

				began := time.Now()
				i.freezeBefore(at.key)
				if at.key < 0 {
					i.freeze()
				}
				type result struct {
					committed bool
					err       error
				}
				ended := make(chan result, 1)
				go func() {
					committed, err := frozen.Commit(context.Background(), s.Reflect(polled))
					ended <- result{committed, err}
				}()
				if at.key >= 0 {
					<-i.froze
				}

				cfg.Dial, cfg.Owner = nil, "next"
				next := s.open(t, cfg)
				next.until(t, "the takeover", func() bool { return len(next.reflected) == 1 })
				t.Logf("the input was reflected %v after the freeze; session %v, transaction %v", time.Since(began), cfg.SessionTimeout, cfg.TransactionTimeout)
				if took := time.Since(began); took > cfg.TransactionTimeout {
					t.Errorf("the takeover took %v: it waited for the transaction timeout of %v", took, cfg.TransactionTimeout)
				}
				i.thaw()
				if r := <-ended; r.committed {
					t.Errorf("the frozen worker committed after the takeover")
				} else {
					t.Logf("the frozen worker: %v", r.err)
				}
				if seen := s.Reflected(t, 1); len(seen) != 1 || seen[s.Inboxes[3]+"/4/0"] != 1 {
					t.Errorf("events: %v", seen)
				}
			})
		})
	}
}

// TestCommitOfALostPartitionIsRolledBack checks a partition that is reassigned between a poll and its commit.
func TestCommitOfALostPartitionIsRolledBack(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := openWorker(t, s.worker("a"))
		untilAssigned(t, a, testPartitions)
		cl := s.Outside(t)
		for p := range int32(testPartitions) {
			kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[3], p, fmt.Sprint(p)))
		}
		var polled []events.Record
		until(t, a, "all inputs", func(rs []events.Record) bool { polled = append(polled, rs...); return len(polled) == testPartitions })

		b := s.open(t, s.worker("b"))
		b.until(t, "half the partitions", func() bool { return len(b.worker.Assigned()) == testPartitions/2 })
		if committed, err := a.Commit(t.Context(), s.Reflect(polled)); committed || err != nil {
			t.Fatalf("committed %v, %v: half of it was another worker's", committed, err)
		}
		kept := 0
		until(t, a, "the own half again", func(rs []events.Record) bool {
			if len(rs) > 0 {
				commit(t, a, len(rs), s.Reflect(rs))
			}
			kept += len(rs)
			return kept == testPartitions/2
		})
		b.until(t, "the other half", func() bool { return len(b.reflected) == testPartitions/2 })
		for cause, n := range s.Reflected(t, testPartitions) {
			if n != 1 {
				t.Errorf("%s reflected %d times", cause, n)
			}
		}
	})
}

// TestLostAnswerToEnd checks a transaction that the broker ends, but whose response is lost.
func TestLostAnswerToEnd(t *testing.T) {
	s := embedded(t)
	l := openWorker(t, s.worker("one"))
	untilAssigned(t, l, testPartitions)
	cl := s.Outside(t)
	kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[3], 4, "a"))
	rs := poll(t, l)
	s.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.RequestTimedOut, TopLevel: true, Count: -1})
	committed, err := l.Commit(t.Context(), s.Reflect(rs))
	t.Logf("committed %v, %v", committed, err)
	if err == nil {
		t.Fatalf("a commit whose answer was lost is reported as %v for certain", committed)
	}
	if _, again := l.Poll(t.Context()); !errors.Is(again, kerr.RequestTimedOut) {
		t.Fatalf("the worker goes on after an unknown outcome: %v", again)
	}
	if _, again := l.Commit(t.Context(), nil); again == nil {
		t.Fatal("the worker commits after an unknown outcome")
	}
}

func TestOutputThatCannotBeWritten(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	for _, bad := range []struct {
		name      string
		record    events.Record // its topic is completed with the namespace
		fault     *kerr.Error   // only on the embedded broker
		permanent bool
	}{
		{name: "missing topic", record: events.Record{Topic: "requests.nobody"}, permanent: true},
		{name: "missing partition", record: events.Record{Topic: "events", Partition: 77}, permanent: true},
		{name: "too large", record: events.Record{Topic: "events", Value: bytes.Repeat([]byte("x"), 2<<20)}, permanent: true},
		{name: "not authorised", record: events.Record{Topic: "requests.a"}, fault: kerr.TopicAuthorizationFailed, permanent: true},
		{name: "replicas missing", record: events.Record{Topic: "requests.a"}, fault: kerr.NotEnoughReplicas},
	} {
		check := func(t *testing.T, s *site) {
			good := events.Record{Topic: s.NS.Events(), Partition: 4, Value: []byte("good")}
			refusedRecord := bad.record
			refusedRecord.Topic = string(s.NS) + refusedRecord.Topic
			cfg := s.worker("one")
			if !bad.permanent {
				cfg.TransactionTimeout = 6 * time.Second // it is tried for a third of that
			}
			l := openWorker(t, cfg)
			untilAssigned(t, l, testPartitions)
			cl := s.Outside(t)
			kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[3], 4, "a"))
			rs := poll(t, l)
			if bad.fault != nil {
				s.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: refusedRecord.Topic, Err: bad.fault, Count: -1})
			}
			for range 2 { // the second attempt is not slower
				began := time.Now()
				committed, err := l.Commit(t.Context(), []events.Record{good, refusedRecord, good})
				took := time.Since(began)
				t.Logf("after %v: %v", took, err)
				var refused *schedulerworker.ProduceError
				if committed || !errors.As(err, &refused) || refused.Index != 1 || refused.Permanent() != bad.permanent {
					t.Fatalf("committed %v, %v", committed, err)
				}
				if bad.permanent && took > cfg.TransactionTimeout/4 {
					t.Errorf("it held the worker for %v", took)
				}
				again := poll(t, l)
				if len(again) != 1 || again[0].Offset != rs[0].Offset {
					t.Fatalf("after the rollback came %v", again)
				}
			}
			commit(t, l, 1, []events.Record{good})
			if seen := s.Reflected(t, 1); seen["good"] != 1 {
				t.Errorf("events: %v", seen)
			}
		}
		t.Run(bad.name, func(t *testing.T) {
			if bad.fault == nil {
				each(t, check)
				return
			}
			t.Parallel()
			check(t, embedded(t))
		})
	}
}

func TestFencedWorkerSaysSo(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cfg := s.worker("one")
		cfg.TransactionTimeout = time.Minute // so that a slow response of a busy broker doesn't fail the test
		first := openWorker(t, cfg)
		untilAssigned(t, first, testPartitions)
		cl := s.Outside(t)
		kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[3], 4, "a"))
		commit(t, first, 1, s.Reflect(poll(t, first)))
		kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[3], 4, "b"))
		rs := poll(t, first)

		usurper := s.Outside(t, kgo.TransactionalID(kafka.TransactionalID(s.Config, "one")))
		if _, _, err := usurper.ProducerID(t.Context()); err != nil {
			t.Fatal(err)
		}
		committed, err := first.Commit(t.Context(), s.Reflect(rs))
		if committed || err == nil {
			t.Fatalf("committed %v, %v", committed, err)
		}
		if !strings.Contains(err.Error(), "open a new one") {
			t.Errorf("the error does not say what to do: %v", err)
		}
	})
}

func TestCloseIsBoundedWithoutABroker(t *testing.T) {
	t.Parallel() // it mostly waits
	s := embedded(t)
	l := openWorker(t, s.worker("one"))
	untilAssigned(t, l, testPartitions)
	s.Fake.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		s.Fake.KeepControl()
		return nil, nil, true // received, never answered
	})
	began := time.Now()
	l.Close()
	if took := time.Since(began); took > time.Minute {
		t.Fatalf("closing took %v", took)
	}
}

func TestStalledTellsHowLongRecordsWait(t *testing.T) {
	s := embedded(t)
	l := openWorker(t, s.worker("one"))
	untilAssigned(t, l, testPartitions)
	later := func() time.Time { return time.Now().Add(time.Hour) }
	if d := l.Stalled(later()); d != 0 {
		t.Fatalf("an idle worker is stalled for %v", d)
	}
	cl := s.Outside(t)
	kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[3], 4, "a"))
	rs := poll(t, l)
	if d := l.Stalled(later()); d < 59*time.Minute {
		t.Fatalf("a record waits, yet stalled for %v", d)
	}
	commit(t, l, 1, s.Reflect(rs))
	if d := l.Stalled(later()); d != 0 {
		t.Fatalf("stalled for %v after a commit", d)
	}
	if time.Since(l.LastCommit()) > time.Minute {
		t.Fatalf("last commit at %v", l.LastCommit())
	}
}

// TestAForgottenMemberGivesUpEverything checks a member that the group has removed, and that learns it only from a new
// member id when it joins. The client alone would continue with its old positions.
func TestAForgottenMemberGivesUpEverything(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	s := embedded(t)
	failed := make(chan error, 10)
	cfg := s.worker("a")
	cfg.Listener = &schedulerworker.Listener{GroupFailed: func(err error) { failed <- err }}
	a := openWorker(t, cfg)
	untilAssigned(t, a, testPartitions)
	before := a.Assigned()
	kafkatest.Submit(t, s.Outside(t), kafkatest.Input(s.Inboxes[3], 4, "a"))
	polled := poll(t, a)

	owns := func(req kmsg.Request) bool { // selects the first worker's JoinGroup request
		var meta kmsg.ConsumerMemberMetadata
		protocols := req.(*kmsg.JoinGroupRequest).Protocols
		return len(protocols) == 1 && meta.ReadFrom(protocols[0].Metadata) == nil && len(meta.OwnedPartitions) > 0
	}
	s.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.UnknownMemberID, TopLevel: true, When: owns})
	// The second member makes the first one join again.
	b := s.open(t, s.worker("b"))
	b.until(t, "half", func() bool { return len(b.worker.Assigned()) == testPartitions/2 })
	if committed, err := a.Commit(t.Context(), s.Reflect(polled)); committed || err != nil {
		t.Fatalf("committed %v, %v", committed, err)
	}
	select {
	case err := <-failed:
		if !contains(err, "the group forgot member") {
			t.Errorf("the membership ended by %v", err)
		}
	default:
		t.Error("the membership did not end")
	}
	untilAssigned(t, a, testPartitions/2)
	for p, n := range a.Assigned() {
		if before[p] == n {
			t.Errorf("partition %d counts as owned all along", p)
		}
	}
}
