package schedulerworker_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestFencedWorkerKnowsWhetherItHasADuplicate checks the older of two workers with one instance id that notices first
// that its producer is fenced. It ends for good. A worker that is fenced without a duplicate, for example after a
// freeze, continues with a new client.
func TestFencedWorkerKnowsWhetherItHasADuplicate(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	for name, duplicate := range map[string]bool{"by a duplicate": true, "by who takes its partitions": false} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				cfg := s.worker("a")
				cfg.InstanceID = string(s.NS) + "a"
				// Neither may end because the machine is busy: the duplicate stays a member, and the transaction open.
				cfg.SessionTimeout, cfg.TransactionTimeout = 6*time.Second, testOpenFor
				older := openWorker(t, cfg)
				if duplicate {
					older.AwaitDuplicates(suite.Patience)
				}
				untilAssigned(t, older, testPartitions)
				kafkatest.Submit(t, s.Outside(t), kafkatest.Input(s.Inboxes[0], 1, "x"))
				in := poll(t, older)
				if _, _, err := s.Outside(t, kgo.TransactionalID(kafka.TransactionalID(s.Config, "a"))).ProducerID(t.Context()); err != nil {
					t.Fatal(err)
				}
				joined := make(chan *schedulerworker.Worker, 1)
				if duplicate {
					go func() { // a duplicate also joins the group; the older worker has noticed its fenced producer first
						newer, err := schedulerworker.Open(t.Context(), cfg)
						if err != nil {
							t.Error(err)
						}
						joined <- newer
					}()
					defer func() {
						if newer := <-joined; newer != nil {
							untilAssigned(t, newer, testPartitions) // the newer one stays a member
							newer.Close()
						}
					}()
				}
				committed, err := older.Commit(t.Context(), s.Reflect(in))
				if committed || !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
					t.Fatalf("committed %v, %v; want that it is fenced", committed, err)
				}
				if _, is := errors.AsType[*groupmember.DuplicateInstanceError](err); is != duplicate {
					t.Errorf("has a duplicate: %v, says %v", duplicate, err)
				}
			})
		})
	}
}

// TestWorkerThatRejoinsIsNotItsOwnDuplicate checks a worker that joins its group again under its instance id, after
// it was frozen. The id then belongs to its own new member. Until it gets the response, its heartbeats fail as those of
// an older duplicate would. It must not report a duplicate.
func TestWorkerThatRejoinsIsNotItsOwnDuplicate(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cfg := s.worker("a")
		cfg.InstanceID = string(s.NS) + "a"
		var deaf sync.RWMutex // while it is locked, the worker receives no responses
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &deafConn{conn, &deaf}, nil
		}
		frozen := openWorker(t, cfg)
		untilAssigned(t, frozen, testPartitions)

		// Once the other member has all partitions, it blocks and ignores the next rebalance, so a joining member waits
		// for it.
		release := make(chan struct{})
		defer close(release)
		alone := make(chan struct{})
		beside := s.worker("b")
		beside.SessionTimeout, beside.TransactionTimeout = 5*time.Second, 10*time.Second
		got := 0
		beside.Listener = &schedulerworker.Listener{Assigned: func(added, lost []int32) {
			if got += len(added) - len(lost); got == testPartitions {
				close(alone)
				<-release
			}
		}}
		other := openWorker(t, beside)
		for len(other.Assigned()) == 0 || len(frozen.Assigned()) == testPartitions {
			for _, l := range []*schedulerworker.Worker{frozen, other} {
				if _, err := l.Poll(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		admin := kadm.NewClient(s.Outside(t))
		deaf.Lock() // otherwise it would join again before the other member gets all partitions
		if _, err := admin.LeaveGroup(t.Context(), kadm.LeaveGroup(cfg.Group).InstanceIDs(cfg.InstanceID)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-alone:
		case <-time.After(suite.Patience):
			deaf.Unlock()
			t.Fatal("the other member hasn't got all partitions")
		}
		deaf.Unlock()
		if err := frozen.Unfenced(kerr.ProducerFenced); errors.Is(err, kerr.FencedInstanceID) {
			t.Errorf("it has no duplicate: %v", err)
		}
	})
}

// TestNameThatNobodyHasIsNoDuplicate checks a member id without a process. A coordinator that fails to store a static
// member's new id returns to the previous one, which no process has any more. Here, a single JoinGroup request takes
// the instance id. The worker that is fenced by it must not report a duplicate, and is a member again when that id's
// session has expired.
func TestNameThatNobodyHasIsNoDuplicate(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cfg := s.worker("a")
		cfg.InstanceID = string(s.NS) + "a"
		fenced := make(chan error, 100)
		cfg.Listener = &schedulerworker.Listener{GroupFailed: func(err error) {
			select {
			case fenced <- err:
			default:
			}
		}}
		l := openWorker(t, cfg)
		untilAssigned(t, l, testPartitions)
		before, _ := l.Member(0)

		balancer := groupmember.NewBalancer(testPartitions)
		join := kmsg.NewPtrJoinGroupRequest()
		join.Group, join.InstanceID, join.ProtocolType = cfg.Group, &cfg.InstanceID, "consumer"
		join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = int32(cfg.SessionTimeout.Milliseconds()), int32(cfg.TransactionTimeout.Milliseconds())
		protocol := kmsg.NewJoinGroupRequestProtocol()
		protocol.Name, protocol.Metadata = balancer.ProtocolName(), balancer.JoinGroupMetadata(cfg.Topics, nil, 0)
		join.Protocols = append(join.Protocols, protocol)
		resp, err := join.RequestWith(t.Context(), s.Outside(t))
		if err != nil || resp.ErrorCode != 0 {
			t.Fatalf("join under the name: %v, %v", err, kerr.ErrorForCode(resp.ErrorCode))
		}
		told := false
		until(t, l, "another member id", func([]events.Record) bool {
			for len(fenced) > 0 {
				told = errors.Is(<-fenced, kerr.FencedInstanceID) || told
			}
			now, owns := l.Member(0)
			return owns && now != before
		})
		if !told {
			t.Error("it wasn't fenced: the test shows nothing")
		}
	})
}

// deafConn delivers nothing while its lock is held.
type deafConn struct {
	net.Conn
	deaf *sync.RWMutex
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.deaf.RLock()
	defer c.deaf.RUnlock()
	return n, err
}
