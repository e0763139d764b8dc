package index

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/watchdog"
)

// emptyLog has no partitions, and nothing comes.
type emptyLog struct{}

func (emptyLog) Close()                                    {}
func (emptyLog) Position(string, int32) (int64, bool)      { return 0, false }
func (emptyLog) Answered(string, int32) time.Time          { return time.Now() }
func (emptyLog) HighWatermark(string, int32) (int64, bool) { return 0, false }
func (emptyLog) Tail(string, int32) (int64, bool)          { return 0, false }

func (emptyLog) Poll(ctx context.Context) ([]events.Record, error) {
	select {
	case <-time.After(time.Second):
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A loop that hangs, such as in a save on a hanging disk, would leave the index with stale answers. The index ends
// without waiting for the loop, so that the process is restarted; also after it was told to end. Here the observer
// hangs, since virtual time doesn't advance while a goroutine waits for a lock.
func TestHangingDiskEndsTheIndex(t *testing.T) {
	for name, told := range map[string]bool{"at work": false, "told to end": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				x, ended := New(nil, nil), make(chan error, 1)
				begun, hanging, over := time.Now().Add(time.Hour), make(chan struct{}), make(chan struct{})
				hang := func([]events.Record) {
					if time.Now().Equal(begun) {
						close(hanging)
						<-over
					}
				}
				go func() {
					ended <- x.Run(ctx, emptyLog{}, "events", hang)
				}()
				<-hanging
				if told {
					stop()
				}
				var stalled *watchdog.StalledError
				select {
				case err := <-ended:
					if !errors.As(err, &stalled) || !strings.Contains(err.Error(), "disk") {
						t.Errorf("it ended with %v", err)
					}
				case <-time.After(time.Hour):
					t.Error("it hasn't ended")
				}
				if took := time.Since(begun); took < 30*time.Second || took > 35*time.Second {
					t.Errorf("after %v", took)
				}
				close(over)
				stop()
				synctest.Wait()
			})
		})
	}
}
