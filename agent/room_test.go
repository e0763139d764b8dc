package agent

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// slowClient is a session whose client isn't done with a reply when its Send fails.
type slowClient struct {
	*fakeSession
	sent, was []events.Record
}

func (s *slowClient) Send(ctx context.Context, rec events.Record) error {
	err := s.fakeSession.Send(ctx, rec)
	if err != nil {
		s.sent, s.was = append(s.sent, rec), append(s.was, kafkatest.Written(&rec))
	}
	return err
}

// A reply whose first send failed may still be written by the client when the second
// was acknowledged: other replies leave its memory alone.
func TestWhatFailedToBeSentStaysAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowClient{fakeSession: newFakeSession()}
		fail := true
		s.sendErr = func() error {
			if fail {
				fail = false
				return errSend
			}
			return nil
		}
		stop := start(t, s.fakeSession, Config{Open: func(context.Context) (Session, error) { return s, nil }}, completes)
		for i := range 20 {
			s.deliver(testRecord(i+1, time.Now().Add(time.Minute)))
			pass(time.Second)
		}
		stop()
		if s.outcome(testID(1)) != "completed" || s.outcome(testID(20)) != "completed" || len(s.sent) != 1 {
			t.Fatalf("%q, %q; %d sends failed", s.outcome(testID(1)), s.outcome(testID(20)), len(s.sent))
		}
		if !reflect.DeepEqual(s.sent, s.was) {
			t.Errorf("a reply became %v, it was %v", s.sent[0], s.was[0])
		}
	})
}
