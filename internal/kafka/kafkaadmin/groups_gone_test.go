package kafkaadmin_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestGroupWhoseCoordinatorIsGone checks that requests about a group find its new coordinator after the old one is gone
// for good.
func TestGroupWhoseCoordinatorIsGone(t *testing.T) {
	t.Parallel()
	c := kafkatest.KafkaNodes(t, 3, nil)
	b := kafkatest.FromCluster(c)
	a, err := kafkaadmin.Open(kafka.Config{Brokers: b.Addrs, Namespace: "test."})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	questions := map[string]func(ctx context.Context) error{
		"members": func(ctx context.Context) error { _, err := a.DescribeGroup(ctx, "g"); return err },
		"lag":     func(ctx context.Context) error { _, err := a.GroupLag(ctx, "g"); return err },
		"commits": func(ctx context.Context) error { _, err := a.Commits(ctx, "g"); return err },
	}
	for name, ask := range questions {
		if err := ask(t.Context()); err != nil {
			t.Fatal(name, err)
		}
	}
	at := kadm.NewClient(b.Client(t)).FindGroupCoordinators(t.Context(), "g")["g"]
	if at.Err != nil {
		t.Fatal(at.Err)
	}
	if err := c.Kill(int(at.NodeID) - 1); err != nil {
		t.Fatal(err)
	}
	for name, ask := range questions {
		deadline := time.Now().Add(suite.Patience) // time for the other nodes to detect the failure
		for {
			err := ask(t.Context())
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
	}
}
