package agentsession

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka"
)

// TestRefusedSessionEndsAfterABound checks a session that the cluster refuses. It is reported immediately, retried, and
// ended after RefusedMax. A success in between restarts that period. Errors that joining again can't fix end the
// session immediately.
func TestRefusedSessionEndsAfterABound(t *testing.T) {
	denied := fmt.Errorf("poll: %w", &kgo.ErrGroupSession{Err: kerr.GroupAuthorizationFailed})
	s := &Session{}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for ; now.Minute() < 5; now = now.Add(5 * time.Second) {
		if err := s.fatalError(denied, now); err != nil {
			t.Fatalf("refused for less than %v: %v", kafka.RefusedMax, err)
		}
	}
	now = now.Add(kafka.RefusedGap + time.Second) // requests were permitted in between
	began := now
	var err error
	for ; err == nil; now = now.Add(5 * time.Second) {
		err = s.fatalError(denied, now)
	}
	over, is := errors.AsType[*kafka.RefusedError](err)
	if took := now.Sub(began); !is || !over.Permanent() || !errors.Is(err, kerr.GroupAuthorizationFailed) || took < kafka.RefusedMax || took > kafka.RefusedMax+15*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	if !kafka.IsRefused(denied) || kafka.IsRefused(kerr.NotCoordinator) {
		t.Error("what operators have to act on isn't told from what passes")
	}
	if err := s.fatalError(kerr.InvalidSessionTimeout, now); err == nil {
		t.Error("a session timeout that brokers don't take is tried again")
	}
	if err := s.fatalError(kerr.CoordinatorNotAvailable, now); err != nil {
		t.Errorf("a coordinator that moves ends a session: %v", err)
	}
}

// TestSessionWhoseRepliesArentPermittedEnds checks that refused replies end the session after RefusedMax. Replies that
// can be retried don't.
func TestSessionWhoseRepliesArentPermittedEnds(t *testing.T) {
	s := &Session{}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for range 100 {
		s.recordRefusal(kerr.NotEnoughReplicas, now)
		now = now.Add(5 * time.Second)
	}
	s.recordRefusal(kerr.TopicAuthorizationFailed, now)
	if now = now.Add(kafka.RefusedGap + time.Second); s.repliesError() != nil {
		t.Fatal("one reply that wasn't permitted ended the session")
	}
	for began := now; s.repliesError() == nil; now = now.Add(5 * time.Second) {
		if s.recordRefusal(kerr.TopicAuthorizationFailed, now); now.Sub(began) > 2*kafka.RefusedMax {
			t.Fatal("it goes on for ever")
		}
	}
	if err, is := errors.AsType[*kafka.RefusedError](s.repliesError()); !is || !err.Permanent() {
		t.Error(err)
	}
}
