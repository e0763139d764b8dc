package schedulerworker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestIdleWorkersKnowWhatTheyOwn checks that workers without anything to commit know their partitions after others join
// and leave, and that each partition has one owner. The client's callbacks don't suffice: a transactional session
// reports only the first revocation since the last transaction.
func TestIdleWorkersKnowWhatTheyOwn(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		var workers []*schedulerworker.Worker
		for i := range 4 {
			workers = append(workers, openWorker(t, s.worker(fmt.Sprint("idle", i))))
			untilShared(t, workers)
		}
		workers[1].Close()
		workers = append(workers[:1], workers[2:]...)
		untilShared(t, workers)
	})
}

// untilShared polls all workers, and expects no records, until each partition has one owner and the numbers are
// balanced.
func untilShared(t *testing.T, workers []*schedulerworker.Worker) {
	t.Helper()
	const longest = 3 * time.Minute
	for deadline := time.Now().Add(longest); ; {
		owners, even := map[int32]int{}, true
		for _, l := range workers {
			if rs, err := l.Poll(t.Context()); err != nil || len(rs) > 0 {
				t.Fatalf("an idle worker polled %d records, %v", len(rs), err)
			}
			n := 0
			for p := range l.Assigned() {
				owners[p]++
				n++
			}
			even = even && n >= testPartitions/len(workers) && n <= (testPartitions+len(workers)-1)/len(workers)
		}
		once := len(owners) == testPartitions
		for _, n := range owners {
			once = once && n == 1
		}
		if even && once {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d idle workers believe to own, after %s: %v", len(workers), longest, owners)
		}
	}
}

// TestIdleWorkersPassMarkers checks that a group has no lag from transaction markers at the end of an inbox, such as
// those of a client that submits in transactions.
func TestIdleWorkersPassMarkers(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		tx := s.Outside(t, kgo.TransactionalID(string(s.NS)+"client"))
		transact := func(end kgo.TransactionEndTry, rs ...*kgo.Record) {
			if err := tx.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			kafkatest.Submit(t, tx, rs...)
			if err := kafka.EndTransaction(t.Context(), tx, end); err != nil {
				t.Fatal(err)
			}
		}
		l := openWorker(t, s.worker("one"))
		untilAssigned(t, l, testPartitions)
		transact(kgo.TryCommit, kafkatest.Input(s.Inboxes[0], 4, "a"), kafkatest.Input(s.Inboxes[1], 5, "b"))
		var in []events.Record
		until(t, l, "both records", func(rs []events.Record) bool { in = append(in, rs...); return len(in) == 2 })
		commit(t, l, len(in), s.Reflect(in))
		transact(kgo.TryAbort, kafkatest.Input(s.Inboxes[0], 4, "c"), kafkatest.Input(s.Inboxes[2], 6, "d"))

		admin, err := kafkaadmin.Open(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		until(t, l, "the end of the lag", func(rs []events.Record) bool {
			if len(rs) > 0 {
				t.Fatalf("came %+v", rs)
			}
			lags, err := admin.GroupLag(t.Context(), s.worker("one").Group)
			if err != nil {
				t.Fatal(err)
			}
			sum := int64(0)
			for _, ps := range lags {
				for _, lag := range ps {
					sum += lag
				}
			}
			return sum == 0
		})
		transact(kgo.TryCommit, kafkatest.Input(s.Inboxes[0], 4, "e"))
		if rs := poll(t, l); len(rs) != 1 || string(rs[0].Value) != "e" || rs[0].Offset != 4 {
			t.Fatalf("then came %+v", rs)
		}
	})
}
