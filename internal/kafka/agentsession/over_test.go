package agentsession_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestAReplyWhoseTimeIsOverIsRefusedAtOnce checks that Send refuses a reply when the clock is past its deadline,
// without waiting for the context to end.
func TestAReplyWhoseTimeIsOverIsRefusedAtOnce(t *testing.T) {
	r := newRequests(t, kafkatest.Embedded(t), 1)
	s := r.open()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		answer <- s.Send(lateContext{ctx, time.Now().Add(-time.Millisecond)}, events.Record{
			Topic: r.Config.Namespace.Inbox(events.Replies), Partition: -1, Key: []byte("task"), Value: []byte("late")})
	}()
	select {
	case err := <-answer:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a reply past its deadline: %v", err)
		}
	case <-time.After(suite.Patience):
		t.Error("a reply past its deadline is on its way still")
	}
}
