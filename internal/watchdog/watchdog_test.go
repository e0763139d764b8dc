package watchdog

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Slow iterations and long waits between them are no hang. An iteration that takes checksMax checks is.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Loop
		ended, watched := make(chan error, 1), make(chan error, 1)
		go func() { watched <- l.Watch("index", ended) }()
		for range 3 {
			l.Begin()
			time.Sleep((checksMax - 2) * checkEvery)
			l.End()
			time.Sleep(3 * checksMax * checkEvery)
		}
		select {
		case err := <-watched:
			t.Fatalf("Watch returned while the loop made progress: %v", err)
		default:
		}
		ended <- errors.ErrUnsupported
		if err := <-watched; !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Watch returned %v; want the error of the loop", err)
		}

		go func() { watched <- l.Watch("index", ended) }()
		l.Begin()
		begun := time.Now()
		var stalled *StalledError
		if err := <-watched; !errors.As(err, &stalled) || stalled.Role != "index" {
			t.Errorf("Watch returned %v for a loop that hangs; want a StalledError of the index", err)
		}
		if took := time.Since(begun); took < checksMax*checkEvery || took > (checksMax+2)*checkEvery {
			t.Errorf("Watch returned after %v; want about %v", took, checksMax*checkEvery)
		}
	})
}
