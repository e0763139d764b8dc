package schedulerworker_test

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// longSession is longer than any test waits. A member that gets partitions got them because another left.
const (
	longSession     = 4 * time.Minute
	longTransaction = 5 * time.Minute
)

// TestStaticMemberLeaves checks that a static member that won't return leaves its group when it closes, and that
// another member gets its partitions immediately instead of after the session timeout.
func TestStaticMemberLeaves(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cfg := func(name string) schedulerworker.Config {
			c := s.worker(name)
			c.InstanceID, c.LeaveOnClose = string(s.NS)+name, yes
			c.SessionTimeout, c.TransactionTimeout = longSession, longTransaction
			c.Listener = &schedulerworker.Listener{LeaveFailed: func(err error) { t.Errorf("%s: %v", name, err) }}
			return c
		}
		goes := openWorker(t, cfg("goes"))
		untilAssigned(t, goes, testPartitions)
		stays := openWorker(t, cfg("stays"))
		shared := make(chan struct{})
		go func() { // it revokes its half only while it polls
			defer close(shared)
			untilAssigned(t, goes, testPartitions/2)
		}()
		untilAssigned(t, stays, testPartitions/2)
		<-shared
		goes.Close()
		untilAssigned(t, stays, testPartitions)
	})
}

// TestStaticMemberLeavesItsDuplicateAlone checks a worker whose instance id another process has taken over. When it
// leaves, it must not remove that process from the group. kfake removes a static member by its instance id, whatever
// its member id, so the test needs Kafka.
func TestStaticMemberLeavesItsDuplicateAlone(t *testing.T) {
	s := newSite(t, kafkatest.Kafka(t))
	cfg := s.worker("one")
	cfg.InstanceID, cfg.LeaveOnClose = string(s.NS)+"one", yes
	older := openWorker(t, cfg)
	untilAssigned(t, older, testPartitions)
	cfg.Owner = "two" // otherwise it would be fenced and close
	duplicate := openWorker(t, cfg)
	untilAssigned(t, duplicate, testPartitions)
	before, _ := duplicate.Member(0)
	older.Close()
	kafkatest.Submit(t, s.Outside(t), kafkatest.Input(s.Inboxes[3], 4, "a"))
	in := poll(t, duplicate)
	if committed, err := duplicate.Commit(t.Context(), s.Reflect(in)); !committed || err != nil {
		t.Errorf("the duplicate commits: %v, %v", committed, err)
	}
	if after, owns := duplicate.Member(0); after != before || !owns {
		t.Errorf("the duplicate was member %s and is %s, and has partition 0: %v", before, after, owns)
	}
}
