package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/projections"
)

// A role that ends closes its store. What the process says must be why the role
// ended, not that the store was closed.
func TestAClosedStoreHidesNoReason(t *testing.T) {
	n := &Instance{Kafka: kafka.Config{Namespace: events.DefaultNamespace}, DataDir: t.TempDir(), ClusterID: "c", Partitions: 1, log: slog.New(slog.DiscardHandler)}
	why := errors.New("why")
	err := n.Run(t.Context(), func(ctx context.Context) error {
		s, err := n.openStore(ctx, projections.ViewTasks)
		if err != nil {
			return err
		}
		if err := s.Close(); err != nil {
			return err
		}
		select {
		case <-ctx.Done(): // by somebody else's error
		case <-time.After(100 * time.Millisecond):
		}
		return why
	})
	if !errors.Is(err, why) {
		t.Errorf("the process ends with %v, want the role's reason", err)
	}
}

// Why a role ended is told, also where something of its own was cancelled: only the end of the process is no
// reason.
func TestWhatARoleCancelledIsAReason(t *testing.T) {
	why := fmt.Errorf("the client: %w", context.Canceled)
	n := &Instance{log: slog.New(slog.DiscardHandler)}
	if err := n.Run(t.Context(), func(context.Context) error { return why }); !errors.Is(err, why) {
		t.Errorf("a role ended with %v, and the process with %v", why, err)
	}
	ctx, end := context.WithCancel(t.Context())
	if err := n.Run(ctx, func(context.Context) error { end(); return why }); err != nil {
		t.Errorf("the process ended, and says %v", err)
	}
}

// A start that is interrupted fails in whatever was under way, and that is nobody's fault.
func TestAnInterruptedStartIsNoFailure(t *testing.T) {
	n := &Instance{log: slog.New(slog.DiscardHandler)}
	ctx, interrupt := context.WithCancel(t.Context())
	err := n.Run(ctx, func(context.Context) error {
		interrupt()
		return errors.New("the broker connection has died")
	})
	if err != nil {
		t.Error(err)
	}
}

// A timeout that brokers don't take is taken of no fresh client: the process ends at once.
func TestRoleWithARefusedTimeoutEnds(t *testing.T) {
	n := &Instance{log: slog.New(slog.DiscardHandler)}
	began, refused := 0, &kafka.TimeoutError{Err: errors.New("outside of the broker's bounds")}
	err := n.runRestarting(t.Context(), "supervisor", func(context.Context) error {
		began++
		return fmt.Errorf("poll: %w", refused)
	}, nil)
	if began != 1 || !errors.Is(err, refused) {
		t.Errorf("begun %d times, then %v", began, err)
	}
}

// A log that begins after what is known ends the process at once, and says what to do.
func TestRoleWhoseLogBeginsLaterEnds(t *testing.T) {
	n := &Instance{log: slog.New(slog.DiscardHandler)}
	began, outside := 0, &kafka.OffsetRangeError{Topic: "waybill.events", Offset: 0, Start: 6, End: 39}
	err := n.runRestarting(t.Context(), "supervisor", func(context.Context) error {
		began++
		return fmt.Errorf("poll: %w", outside)
	}, nil)
	if began != 1 || !errors.Is(err, outside) || !strings.Contains(err.Error(), "restore the topic from a copy") {
		t.Errorf("begun %d times, then %v", began, err)
	}
}

// What a store has and the log hasn't is dropped, of that partition, and the role begins again.
func TestRoleWhoseStoreIsAheadDropsIt(t *testing.T) {
	for name, ahead := range map[string]error{
		"outside the log": &kafka.OffsetRangeError{Topic: "waybill.events", Partition: 3, Offset: 9, End: 4},
		"lost":            &kafka.LostError{Topic: "waybill.events", Partition: 3, From: 4, To: 9},
	} {
		t.Run(name, func(t *testing.T) {
			n := &Instance{log: slog.New(slog.DiscardHandler), metrics: NewMetrics()}
			began, dropped := 0, []int32(nil)
			err := n.runRestarting(t.Context(), "supervisor", func(context.Context) error {
				if began++; began == 1 {
					return fmt.Errorf("poll: %w", ahead)
				}
				return nil
			}, func(p int32) error {
				dropped = append(dropped, p)
				return nil
			})
			if began != 2 || err != nil || !slices.Equal(dropped, []int32{3}) {
				t.Errorf("begun %d times, dropped %v, then %v", began, dropped, err)
			}
		})
	}
}

// A store whose last event isn't in the log any more is of another log. One reader that finds nothing
// there may have had in hand what comes behind it, a few haven't: the store is dropped then,
// also where each reader meets another partition first.
func TestStoreWhoseLastEventIsGoneIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Instance{log: slog.New(slog.DiscardHandler), metrics: NewMetrics()}
		began, dropped, start := 0, map[int32]bool{}, time.Now()
		err := n.runRestarting(t.Context(), "supervisor", func(context.Context) error {
			began++
			time.Sleep(2 * restartWaitMax) // of virtual time: it takes as long to join, perhaps
			if len(dropped) == 2 {
				return nil
			}
			return fmt.Errorf("poll: %w", &projections.LogMismatchError{Partition: int32(began % 2), Offset: 41})
		}, func(p int32) error {
			dropped[p] = true
			return nil
		})
		if began > 2*missingEventTries+1 || time.Since(start) > 5*time.Minute || err != nil {
			t.Errorf("begun %d times in %s, then %v", began, time.Since(start), err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := &Instance{log: slog.New(slog.DiscardHandler)}
		began := 0
		err := n.runRestarting(t.Context(), "supervisor", func(context.Context) error {
			if began++; began > 20 {
				return nil
			}
			return &projections.LogMismatchError{Offset: int64(began)} // it has gone on
		}, nil)
		if began != 21 || err != nil {
			t.Errorf("begun %d times, then %v", began, err)
		}
	})
}
