package logreader_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestAHangingTransactionIsReported checks a hanging transaction: it is open in a partition, although its coordinator has
// ended it. Apache Kafka can leave one when a single node is killed. The read reports it once, with the command that
// aborts it. The current producer with that transactional id isn't fenced.
func TestAHangingTransactionIsReported(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	t.Parallel()
	t.Run("its id was fenced", func(t *testing.T) {
		hangs(t, kmsg.InitProducerID, 1, func(kmsg.Response) {}) // it answers that it fenced the id, without doing so
	})
	t.Run("its id has gone on", func(t *testing.T) {
		hangs(t, kmsg.DescribeTransactions, 0, func(answer kmsg.Response) {
			r := answer.(*kmsg.DescribeTransactionsResponse)
			s := kmsg.NewDescribeTransactionsResponseTransactionState()
			s.TransactionalID, s.State, s.ProducerEpoch = "hang.scheduler.lost", "Empty", 5
			r.TransactionStates = append(r.TransactionStates, s)
		})
	})
}

// hangs reads a partition with an open transaction. The broker answers requests of the given key as answer says.
func hangs(t *testing.T, key kmsg.Key, wantFenced int, answer func(kmsg.Response)) {
	s := embedded(t)
	s.NS, s.Config.Namespace = "hang.", "hang."
	s.CreateTopics(t, testPartitions, s.NS.Events())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fenced, heldBack := 0, 0
	var told []error
	r := s.restorer(t, &logreader.RestoreListener{
		Blocked: func(string, int32, int64, int64) { heldBack++ },
		Fenced:  func(string) { fenced++ },
		NotFenced: func(_ string, _ int32, err error) {
			told = append(told, err)
			cancel()
		},
	})
	s.Transact(t, 3, kgo.TryCommit, "a")
	s.Begin(t, string(s.NS)+"scheduler.lost", 3, "open")
	s.Fake.ControlKey(int16(key), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		s.Fake.KeepControl()
		response := k.ResponseKind()
		answer(response)
		return response, nil, true
	})
	next, err := r.Read(ctx, s.NS.Events(), 3, 0, func([]events.Record) error { return nil })
	if !errors.Is(err, context.Canceled) || next != 2 {
		t.Fatalf("next %d, %v", next, err)
	}
	var hanging *logreader.HangingError
	if len(told) != 1 || !errors.As(told[0], &hanging) || hanging.Topic != s.NS.Events() || hanging.Partition != 3 || hanging.Start != 2 {
		t.Fatalf("told %v", told)
	}
	if end := "abort --topic " + s.NS.Events() + " --partition 3 --start-offset 2"; !strings.HasSuffix(hanging.Error(), end) {
		t.Errorf("the message doesn't end with %q: %v", end, hanging)
	}
	if fenced != wantFenced || heldBack > 5 {
		t.Errorf("fenced %d times, want %d; told %d times that something is open", fenced, wantFenced, heldBack)
	}
}
