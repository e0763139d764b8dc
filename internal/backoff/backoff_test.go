package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/internal/backoff"
)

func TestAfterDoublesUpToItsLimit(t *testing.T) {
	for failures, want := range []time.Duration{50, 50, 100, 200, 400, 500, 500} {
		if got := backoff.After(50, 500, failures); got != want {
			t.Errorf("after %d failures: %d, want %d", failures, got, want)
		}
	}
	if got := backoff.After(50, 20, 1); got != 20 {
		t.Errorf("a first wait above the limit: %d", got)
	}
	if got := backoff.After(time.Second, time.Hour, 1<<30); got != time.Hour {
		t.Errorf("after many failures: %v", got)
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if err := backoff.Sleep(ctx, 40*time.Second); err != nil || time.Since(start) != 40*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := backoff.Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
