// Package backoff has the waits between the tries of an operation that failed, and how long a refused one is tried. The
// waits of steps and attempts, which are decided from the log, are package events' (Attempts.Delay).
package backoff

import (
	"context"
	"time"
)

// After returns the wait after a number of failures in a row: first after one, then twice as much each time, at most
// limit.
func After(first, limit time.Duration, failures int) time.Duration {
	wait := first
	for range failures - 1 {
		if wait >= limit/2 {
			return limit
		}
		wait *= 2
	}
	return min(wait, limit)
}

// Sleep waits. If ctx ends first, it returns ctx's error.
func Sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
