package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/backoff"
)

type notPermitted struct{ error }

func (notPermitted) Refused() bool { return true }

// TestUnauthorizedWorkerEndsAfterALimit checks that a worker without authorization retries for a limited time. The time
// restarts after a client that was authorized for a while, or that failed for another reason.
func TestUnauthorizedWorkerEndsAfterALimit(t *testing.T) {
	denied := fmt.Errorf("open worker: %w", notPermitted{errors.New("SASL_AUTHENTICATION_FAILED")})
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var refused backoff.RefusedPeriod
	try := func(err error, lived time.Duration) bool {
		opened := now
		now = now.Add(lived + reopenWaitMax)
		return refused.Exceeded(isRefused(err), opened, now)
	}
	for range 5 {
		if try(denied, time.Second) {
			t.Fatal("it ended within the bound")
		}
	}
	if try(errors.New("away"), time.Second) || try(denied, time.Second) || try(denied, time.Hour) {
		t.Fatal("what was permitted meanwhile counts")
	}
	for began := now; !try(denied, time.Second); {
		if now.Sub(began) > 2*backoff.RefusedMax {
			t.Fatal("it is tried for ever")
		}
	}
}
