package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestOlderOfTwoProcessesWithOneNameEnds: if two processes run under one instance name, the older one exits and says
// why. Otherwise each would evict the other from its consumer groups forever.
func TestOlderOfTwoProcessesWithOneNameEnds(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		s := &system{broker: b, ns: b.Namespace(t)}
		createTopics(t, s.config())
		admin, err := kafkaadmin.Open(s.config())
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		for role, c := range map[string]struct {
			group string
			flags []string
		}{
			"scheduler":  {s.ns.SchedulerGroup(), []string{"--workers", "2"}},
			"supervisor": {s.ns.SupervisorGroup(), nil},
		} {
			start := func() *process { return s.start(t, append([]string{role, "--instance", "one"}, c.flags...)...) }
			older := start()
			awaitOwners(t, admin, s.ns, c.group)
			newer := start()
			select {
			case <-older.ended:
			case <-newer.ended:
				t.Fatalf("the newer %s ended: %v", role, newer.err)
			case <-time.After(suite.Patience):
				t.Fatalf("two %ss live on under one name", role)
			}
			if said, _ := older.out.find("waybill: "); older.cmd.ProcessState.ExitCode() != exitOther || !strings.Contains(said, "another process has joined under the name") {
				t.Errorf("the older %s ended with %v and says %q", role, older.err, said)
			}
			awaitOwners(t, admin, s.ns, c.group)
			newer.stop(t)
		}
	})
}

// awaitOwners waits until each partition of events, or of an inbox, has an owner in the group. It polls, since Kafka
// doesn't notify of group changes.
func awaitOwners(t *testing.T, admin *kafkaadmin.Admin, ns events.Namespace, group string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		state, err := admin.DescribeGroup(ctx, group)
		if err != nil {
			t.Fatal(err)
		}
		owned := 0
		for _, m := range state.Members {
			owned += max(len(m.Partitions[ns.Events()]), len(m.Partitions[ns.Inbox(events.Tasks)]))
		}
		if state.State == "Stable" && owned == 2 { // createTopics creates two partitions
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("group %s is %s, and %d partitions have owners", group, state.State, owned)
		}
	}
}
