package turns

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A turn may take long, and a loop may wait for longer; a turn that goes on for half a minute hangs.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Loop
		ended, seen := make(chan error, 1), make(chan error, 1)
		go func() { seen <- l.Watch("index", ended) }()
		for range 3 {
			l.Begin()
			time.Sleep((looks - 2) * look)
			l.End()
			time.Sleep(3 * looks * look)
		}
		select {
		case err := <-seen:
			t.Fatalf("one that goes on has ended: %v", err)
		default:
		}
		ended <- errors.ErrUnsupported
		if err := <-seen; !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("it ended with %v", err)
		}

		go func() { seen <- l.Watch("index", ended) }()
		l.Begin()
		begun := time.Now()
		var stalled *StalledError
		if err := <-seen; !errors.As(err, &stalled) || stalled.Role != "index" {
			t.Errorf("one that hangs ended with %v", err)
		}
		if took := time.Since(begun); took < looks*look || took > (looks+2)*look {
			t.Errorf("after %v", took)
		}
	})
}
