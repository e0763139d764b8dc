package console

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSharedAsksOnce: callers that come while something is asked share the next asking; an answer that is young enough
// is given without asking; errors are given to those who waited, and are not kept.
func TestSharedAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		var fault error
		s := shared[int]{ask: func(context.Context) (int, error) {
			n++
			time.Sleep(time.Second)
			return n, fault
		}}
		together := func(age time.Duration, want int) {
			t.Helper()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if got, _, err := s.get(t.Context(), time.Now().Add(-age), time.Minute); got != want || err != nil {
						t.Errorf("%d, %v, want %d", got, err, want)
					}
				})
			}
			all.Wait()
		}
		together(0, 1)
		together(2*time.Second, 1) // it is one second old
		together(time.Second/2, 2)
		go func() { _, _, _ = s.get(t.Context(), time.Now(), time.Minute) }()
		time.Sleep(time.Second / 2)
		together(0, 4) // not the third, which began before
		if n != 4 {
			t.Errorf("asked %d times", n)
		}
		fault = errors.New("no broker")
		time.Sleep(time.Second)
		if _, _, err := s.get(t.Context(), time.Now(), time.Minute); !errors.Is(err, fault) {
			t.Error(err)
		}
		fault = nil
		if got, _, err := s.get(t.Context(), time.Now().Add(-time.Hour), time.Minute); got != 4 || err != nil {
			t.Errorf("%d, %v: the last answer without an error is gone", got, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, _, err := s.get(ended, time.Now(), time.Minute); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
	})
}

// TestSharedIsBoundedInTime: a question that takes too long ends, also while callers wait.
func TestSharedIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared[int]{ask: func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}}
		if _, _, err := s.get(t.Context(), time.Now(), time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
