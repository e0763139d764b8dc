package agentsession_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestStaticSessionLeaves checks that a static session leaves its group when it closes.
func TestStaticSessionLeaves(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		t.Parallel()
		r := newRequests(t, b, 1)
		open := func(name string) (*agentsession.Session, <-chan []int32) {
			assigned := make(chan []int32, 10)
			return r.open(func(c *agentsession.Config) {
				c.InstanceID, c.LeaveOnClose, c.SessionTimeout = name, yes, 4*time.Minute
				c.Listener.Assigned = func(ps []int32) { assigned <- slices.Clone(ps) }
			}), assigned
		}
		goes, has := open("goes")
		r.await(has, 0)
		_, gets := open("stays")
		if err := goes.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.await(gets, 0)
	})
}
