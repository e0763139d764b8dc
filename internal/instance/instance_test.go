package instance

import (
	"context"
	"errors"
	"log/slog"
	"testing"
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
		s, err := n.store(ctx, projections.ViewTasks)
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
