package schedulerworker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// dieCommitting freezes worker "one" in a transaction that has committed offsets for input "a" of inbox 0, partition 4.
// thaw lets it continue to its end.
func (s *site) dieCommitting(t *testing.T) (thaw func()) {
	t.Helper()
	ice := newIce()
	cfg := s.worker("one")
	cfg.TransactionTimeout, cfg.Dial = testOpenFor, ice.dial
	dead := openWorker(t, cfg)
	untilAssigned(t, dead, testPartitions)
	kafkatest.Submit(t, s.Outside(t), kafkatest.Input(s.Inboxes[0], 4, "a"))
	in := poll(t, dead)
	ice.freezeBefore(kmsg.EndTxn)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = dead.Commit(t.Context(), s.Reflect(in)) // the outcome is unknown
	}()
	<-ice.froze
	return func() {
		ice.thaw()
		<-done
	}
}

// TestOpeningAWorkerEndsWhatItLeftOpen checks a worker that dies in a transaction after it has committed offsets.
// Opening a worker with the same owner aborts the transaction, and the worker gets the same inputs. No restore and no
// timeout is needed.
func TestOpeningAWorkerEndsWhatItLeftOpen(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		thaw := s.dieCommitting(t)

		next := openWorker(t, s.worker("one"))
		if rs := poll(t, next); len(rs) != 1 || string(rs[0].Value) != "a" {
			t.Errorf("the successor got %+v", rs)
		}
		next.Close()
		thaw()
	})
}

// TestUnstableOffsetsAreReported checks that a worker with another owner waits for the broker to abort the dead
// worker's transaction, and reports the unstable offsets.
func TestUnstableOffsetsAreReported(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		thaw := s.dieCommitting(t)

		told := make(chan []int32, 1)
		cfg := s.worker("two")
		cfg.Listener = &schedulerworker.Listener{OffsetsUnstable: func(ps []int32) { told <- ps }}
		openWorker(t, cfg)
		select {
		case ps := <-told:
			if !slices.Contains(ps, 4) {
				t.Errorf("partitions %v are held back, and not 4", ps)
			}
		case <-time.After(suite.Patience):
			t.Error("nothing is told")
		}
		thaw()
	})
}
