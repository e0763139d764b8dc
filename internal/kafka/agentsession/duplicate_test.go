package agentsession_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestSessionWhoseNameNobodyHasGoesOn checks a session that is fenced by a member id that no process has. It continues,
// and gets its requests again when that member's session has expired. See TestNameThatNobodyHasIsNoDuplicate.
func TestSessionWhoseNameNobodyHasGoesOn(t *testing.T) {
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 1)
		instance := r.Group + ".one"
		assigned, fenced := make(chan []int32, 100), make(chan error, 100)
		s := r.open(func(c *agentsession.Config) {
			c.InstanceID, c.SessionTimeout = instance, 2*time.Second
			c.Listener.Assigned = func(ps []int32) { assigned <- ps }
			c.Listener.TransientError = func(err error) {
				select {
				case fenced <- err:
				default:
				}
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			for {
				if _, err := s.Poll(ctx); err != nil {
					ended <- err
					return
				}
			}
		}()
		<-assigned

		join := kmsg.NewPtrJoinGroupRequest()
		join.Group, join.InstanceID, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = r.Group, &instance, "consumer", 2000, 2000
		balancer, protocol := kgo.CooperativeStickyBalancer(), kmsg.NewJoinGroupRequestProtocol()
		protocol.Name, protocol.Metadata = balancer.ProtocolName(), balancer.JoinGroupMetadata([]string{r.Topic}, nil, 0)
		join.Protocols = append(join.Protocols, protocol)
		resp, err := join.RequestWith(t.Context(), b.Client(t))
		if err != nil || resp.ErrorCode != 0 {
			t.Fatalf("join under the name: %v, %v", err, kerr.ErrorForCode(resp.ErrorCode))
		}
		select {
		case <-assigned:
		case err := <-ended:
			t.Fatalf("the session ended: %v", err)
		}
		told := false
		for len(fenced) > 0 {
			told = errors.Is(<-fenced, kerr.FencedInstanceID) || told
		}
		if !told {
			t.Error("it wasn't fenced: the test shows nothing")
		}
	})
}
