package kafka_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka"
)

// TestIdleLanesKnowWhatTheyOwn: lanes that have nothing to commit see others
// come and go. What they say they own is what the group gave them, each
// partition one lane's, although their client passes over the calls that would
// tell them (a transactional session tells of the first revocation since the
// last transaction, and of no other).
func TestIdleLanesKnowWhatTheyOwn(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		var lanes []*kafka.Lane
		for i := range 4 {
			lanes = append(lanes, openLane(t, s.lane(fmt.Sprint("idle", i))))
			untilShared(t, lanes)
		}
		lanes[1].Close()
		lanes = append(lanes[:1], lanes[2:]...)
		untilShared(t, lanes)
	})
}

// untilShared polls all lanes, none of which gets anything, until they own all
// partitions, evenly, and none twice.
func untilShared(t *testing.T, lanes []*kafka.Lane) {
	t.Helper()
	const longest = 20 * time.Second
	for deadline := time.Now().Add(longest); ; {
		owners, even := map[int32]int{}, true
		for _, l := range lanes {
			if rs, err := l.Poll(t.Context()); err != nil || len(rs) > 0 {
				t.Fatalf("an idle lane polled %d records, %v", len(rs), err)
			}
			n := 0
			for p := range l.Assigned() {
				owners[p]++
				n++
			}
			even = even && n >= testPartitions/len(lanes) && n <= (testPartitions+len(lanes)-1)/len(lanes)
		}
		once := len(owners) == testPartitions
		for _, n := range owners {
			once = once && n == 1
		}
		if even && once {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d idle lanes believe to own, after %s: %v", len(lanes), longest, owners)
		}
	}
}
