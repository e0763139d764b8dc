package kafka_test

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka"
)

// dieCommitting has worker "one" die with input "a" of inbox 0, partition 4, in a
// transaction that has moved the group's positions. thaw lets it go on, to its end.
func (s *site) dieCommitting(t *testing.T) (thaw func()) {
	t.Helper()
	ice := newIce()
	cfg := s.worker("one")
	cfg.TransactionTimeout, cfg.Dial = testOpenFor, ice.dial
	dead := openWorker(t, cfg)
	untilAssigned(t, dead, testPartitions)
	submit(t, s.outside(t), input(s.inboxes[0], 4, "a"))
	in := poll(t, dead)
	ice.freezeBefore(kmsg.EndTxn)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = dead.Commit(t.Context(), s.reflect(in)) // nobody knows
	}()
	<-ice.froze
	return func() {
		ice.thaw()
		<-done
	}
}

// A worker dies in a transaction that has moved the group's positions. Who opens the
// same worker again ends it by that, and gets the same inputs: no restore, and no
// timeout, has to do it.
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

// Who comes after a worker that died like that, under another name, waits for the
// broker to end it, and says so.
func TestOffsetsThatAreHeldBackAreTold(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		thaw := s.dieCommitting(t)

		told := make(chan []int32, 1)
		cfg := s.worker("two")
		cfg.Listener = &kafka.WorkerListener{OffsetsUnstable: func(ps []int32) { told <- ps }}
		openWorker(t, cfg)
		select {
		case ps := <-told:
			if !slices.Contains(ps, 4) {
				t.Errorf("partitions %v are held back, and not 4", ps)
			}
		case <-time.After(30 * time.Second):
			t.Error("nothing is told")
		}
		thaw()
	})
}
