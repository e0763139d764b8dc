package instance

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// pollHangs is a session whose Poll doesn't return.
type pollHangs struct {
	agent.Session
	release chan struct{}
}

func (s pollHangs) Poll(ctx context.Context) ([]events.Record, error) {
	<-s.release
	return nil, context.Canceled
}

// The liveness of an agent is that of its loops. If a poll hangs, the probe fails, because a restart may help. It
// doesn't fail if brokers are unreachable.
func TestAgentLiveness(t *testing.T) {
	for name, hangs := range map[string]bool{"a poll hangs": true, "no broker": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := kafkatest.Virtual(t)
				cfg := kafka.Config{Brokers: b.Addrs, Namespace: events.DefaultNamespace, ClientID: "test", Dial: b.Dial}
				admin, err := kafkaadmin.Open(cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer admin.Close()
				if _, err := admin.CreateTopics(t.Context(), kafkaadmin.CreateTopicsOptions{Partitions: 1, Agents: map[string]int32{"shop": 1}}); err != nil {
					t.Fatal(err)
				}
				release := make(chan struct{})
				c := Config{Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler), OwnClock: true}
				if hangs {
					c.Seams.Sessions = func(s agent.Session) agent.Session { return pollHangs{s, release} }
				}
				n, err := Open(t.Context(), cfg, c)
				if err != nil {
					t.Fatal(err)
				}
				defer n.Close()
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					ended <- n.Run(ctx, func(ctx context.Context) error {
						n.StartAgent(ctx, "shop", 1, agent.Breaker{}, agent.HandlerFunc(func(context.Context, agent.Request) (any, error) { return nil, nil }))
						return nil
					})
				}()
				time.Sleep(15 * time.Second)
				wantProbe(t, n.Health(), LivePath, http.StatusOK, "ok")
				if !hangs {
					b.Fake.Close()
				}
				for range 10 {
					time.Sleep(15 * time.Second)
					if hangs {
						wantProbe(t, n.Health(), LivePath, http.StatusServiceUnavailable, "agent.shop: its loop has made no progress for")
					} else {
						wantProbe(t, n.Health(), LivePath, http.StatusOK, "ok")
					}
				}
				stop()
				close(release)
				if err := <-ended; err != nil && hangs { // without a broker it can't leave its group
					t.Error(err)
				}
			})
		})
	}
}
