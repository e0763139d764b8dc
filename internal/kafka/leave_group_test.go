package kafka_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// A session that no test waits out: who gets partitions got them because a
// member left.
const (
	longSession     = 4 * time.Minute
	longTransaction = 5 * time.Minute
)

func yes() bool { return true }

// A static member that is known not to come back leaves its group when it
// closes, and another has its partitions at once. It stayed for its session,
// 6.8 to 7.3 s of silence by default.
func TestStaticMemberLeaves(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cfg := func(name string) kafka.WorkerConfig {
			c := s.worker(name)
			c.InstanceID, c.LeaveOnClose = string(s.ns)+name, yes
			c.SessionTimeout, c.TransactionTimeout = longSession, longTransaction
			c.Listener = &kafka.WorkerListener{LeaveFailed: func(err error) { t.Errorf("%s: %v", name, err) }}
			return c
		}
		goes := openWorker(t, cfg("goes"))
		untilAssigned(t, goes, testPartitions)
		stays := openWorker(t, cfg("stays"))
		shared := make(chan struct{})
		go func() { // it gives up half only while it polls
			defer close(shared)
			untilAssigned(t, goes, testPartitions/2)
		}()
		untilAssigned(t, stays, testPartitions/2)
		<-shared
		goes.Close()
		untilAssigned(t, stays, testPartitions)
	})
}

// A worker whose instance name another process has taken doesn't put that one out
// of the group when it leaves. The embedded broker takes a static member's
// instance name for it, whatever its id.
func TestStaticMemberLeavesItsTwinAlone(t *testing.T) {
	s := newSite(t, kafkatest.Kafka(t))
	cfg := s.worker("one")
	cfg.InstanceID, cfg.LeaveOnClose = string(s.ns)+"one", yes
	older := openWorker(t, cfg)
	untilAssigned(t, older, testPartitions)
	cfg.Owner = "two" // or it would be fenced, and close
	twin := openWorker(t, cfg)
	untilAssigned(t, twin, testPartitions)
	before, _ := twin.Member(0)
	older.Close()
	submit(t, s.outside(t), input(s.inboxes[3], 4, "a"))
	in := poll(t, twin)
	if committed, err := twin.Commit(t.Context(), s.reflect(in)); !committed || err != nil {
		t.Errorf("the twin commits: %v, %v", committed, err)
	}
	if after, owns := twin.Member(0); after != before || !owns {
		t.Errorf("the twin was member %s and is %s, and has partition 0: %v", before, after, owns)
	}
}

// Likewise one that reads requests, or notifications.
func TestStaticSessionLeaves(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		t.Parallel()
		r := newRequests(t, b, 1)
		open := func(name string) (*kafka.Session, <-chan []int32) {
			assigned := make(chan []int32, 10)
			return r.open(func(c *kafka.SessionConfig) {
				c.InstanceID, c.LeaveOnClose, c.SessionTimeout = name, yes, longSession
				c.Listener.Assigned = func(ps []int32) { assigned <- slices.Clone(ps) }
			}), assigned
		}
		goes, has := open("goes")
		r.await(has, 0)
		_, gets := open("stays")
		if err := goes.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.await(gets, 0)
	})
}

// Likewise one that follows events.
func TestStaticFollowerLeaves(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		open := func(name string) *kafka.Follower {
			c := s.follower()
			c.InstanceID, c.LeaveOnClose, c.SessionTimeout = name, yes, longSession
			c.Listener = &kafka.FollowerListener{LeaveFailed: func(err error) { t.Errorf("%s: %v", name, err) }}
			return openFollower(t, c)
		}
		until := func(f *kafka.Follower, n int) {
			t.Helper()
			for ctx := bounded(t); len(f.Assigned()) != n; {
				if _, err := f.Poll(ctx); err != nil {
					t.Fatalf("%d partitions instead of %d: %v", len(f.Assigned()), n, err)
				}
			}
		}
		goes := open("goes")
		until(goes, testPartitions)
		stays := open("stays")
		shared := make(chan struct{})
		go func() {
			defer close(shared)
			until(goes, testPartitions/2)
		}()
		until(stays, testPartitions/2)
		<-shared
		goes.Close()
		until(stays, testPartitions)
	})
}
