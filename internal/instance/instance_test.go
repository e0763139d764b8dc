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
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/projections"
)

// A role that ends closes its store. The error of the process must be the reason for the end, not that the store is
// closed.
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
		case <-ctx.Done(): // because of another goroutine's error
		case <-time.After(100 * time.Millisecond):
		}
		return why
	})
	if !errors.Is(err, why) {
		t.Errorf("the process ends with %v, want the role's reason", err)
	}
}

// The reason for the end of a role is reported even if the role cancelled something itself. Only the end of the process
// is no reason.
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

// If a start is interrupted, its current step fails. That isn't reported as a failure.
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

// If the brokers refuse a timeout, a new client can't help, so the process ends at once.
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

// If the log begins after the role's last known offset, the process ends at once. Its error says how to fix that.
func TestRoleWhoseLogBeginsLaterEnds(t *testing.T) {
	n := &Instance{log: slog.New(slog.DiscardHandler)}
	began, outside := 0, &logreader.OffsetRangeError{Topic: "waybill.events", Offset: 0, Start: 6, End: 39}
	err := n.runRestarting(t.Context(), "supervisor", func(context.Context) error {
		began++
		return fmt.Errorf("poll: %w", outside)
	}, nil)
	if began != 1 || !errors.Is(err, outside) || !strings.Contains(err.Error(), "restore the topic from a copy") {
		t.Errorf("begun %d times, then %v", began, err)
	}
}

// If a store has events that the log doesn't have, the partition's state is dropped and the role restarts.
func TestRoleWhoseStoreIsAheadDropsIt(t *testing.T) {
	for name, ahead := range map[string]error{
		"outside the log": &logreader.OffsetRangeError{Topic: "waybill.events", Partition: 3, Offset: 9, End: 4},
		"lost":            &logreader.LostError{Topic: "waybill.events", Partition: 3, From: 4, To: 9},
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

// After a restore of the cluster from a copy, all partitions of a role are dropped one after another: soon, however many
// there are.
func TestRoleWhoseStoresAreAllAheadDropsThem(t *testing.T) {
	const partitions = 2 * restartTriesMax
	synctest.Test(t, func(t *testing.T) {
		n := &Instance{log: slog.New(slog.DiscardHandler), metrics: NewMetrics()}
		dropped, start := 0, time.Now()
		err := n.runRestarting(t.Context(), "supervisor", func(context.Context) error {
			if dropped == partitions {
				return nil
			}
			return &projections.LogMismatchError{Partition: int32(dropped), Offset: 41}
		}, func(int32) error {
			dropped++
			return nil
		})
		if took := time.Since(start); err != nil || dropped != partitions || took > partitions*2*time.Second {
			t.Errorf("dropped %d of %d in %s, then %v", dropped, partitions, took, err)
		}
	})
}

// A partition that is dropped again and again ends the process.
func TestStoreThatIsAlwaysAheadEndsTheRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Instance{log: slog.New(slog.DiscardHandler), metrics: NewMetrics()}
		dropped, lost := 0, &logreader.LostError{Topic: "waybill.events", Partition: 3, From: 4, To: 9}
		err := n.runRestarting(t.Context(), "supervisor", func(context.Context) error { return lost }, func(int32) error {
			dropped++
			return nil
		})
		if !errors.Is(err, lost) || dropped > restartTriesMax+1 {
			t.Errorf("dropped %d times, then %v", dropped, err)
		}
	})
}

// If the last event of a store is missing in the log, the store is of another log. But one reader may miss it by
// chance, because it already held later records. After a few readers that miss it, the store is dropped. This holds
// even if the readers find the gap in different partitions.
func TestStoreWhoseLastEventIsGoneIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Instance{log: slog.New(slog.DiscardHandler), metrics: NewMetrics()}
		began, dropped, start := 0, map[int32]bool{}, time.Now()
		err := n.runRestarting(t.Context(), "supervisor", func(context.Context) error {
			began++
			time.Sleep(2 * restartWaitMax) // virtual time; a join may take as long
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
			return &projections.LogMismatchError{Offset: int64(began)} // the log has grown
		}, nil)
		if began != 21 || err != nil {
			t.Errorf("begun %d times, then %v", began, err)
		}
	})
}
