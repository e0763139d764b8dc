package agentsession_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestCircuitIsSeenFromOutside checks that an agent's circuit state is in the metadata of its commits, together with
// the finished requests, until the agent or the partition's next owner reports another.
func TestCircuitIsSeenFromOutside(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 2) // the second partition is never read
		admin, err := kafkaadmin.Open(r.Config)
		must(t, err)
		t.Cleanup(admin.Close)
		shown := func(want map[int32]string) {
			t.Helper()
			if got, err := agentsession.Circuits(r.Ctx, admin, r.Group, r.Topic); err != nil || !maps.Equal(got, want) {
				t.Errorf("circuits are %v, %v; want %v", got, err, want)
			}
		}
		r.Write(0, 0, 4)
		never := func(c *agentsession.Config) { c.CommitEvery = time.Hour }
		s := r.open(never)
		r.poll(s, 4)
		s.Done(0, 0)
		s.CommitSoon()
		r.awaitCommit(0, 1)
		shown(map[int32]string{}) // no state, nothing reported
		if got, err := agentsession.Circuits(r.Ctx, admin, r.Group+"2", r.Topic); err != nil || len(got) != 0 {
			t.Errorf("of a group that was never seen: %v, %v", got, err)
		}
		s.Done(0, 2)
		s.ReportCircuit("open")
		r.awaitCommit(0, 1)
		shown(map[int32]string{0: "open"})
		must(t, s.Close(r.Ctx))
		shown(map[int32]string{0: "open"})

		next := r.open(never)
		if got := r.poll(next, 2); !slices.Equal(got, []string{"1", "3"}) {
			t.Errorf("the next owner got %q; 2 was finished", got)
		}
		next.ReportCircuit("closed")
		r.awaitCommit(0, 1)
		shown(map[int32]string{0: "closed"})
	})
}
