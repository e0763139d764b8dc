package logreader_test

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// TestStaticFollowerLeaves checks that a static follower leaves its group when it closes.
func TestStaticFollowerLeaves(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		open := func(name string) *logreader.Follower {
			c := s.follower()
			c.InstanceID, c.LeaveOnClose, c.SessionTimeout = name, yes, 4*time.Minute
			c.Listener = &logreader.FollowerListener{LeaveFailed: func(err error) { t.Errorf("%s: %v", name, err) }}
			return openFollower(t, c)
		}
		until := func(f *logreader.Follower, n int) {
			t.Helper()
			for ctx := bounded(t); len(f.Assigned()) != n; {
				if _, err := f.Poll(ctx); err != nil {
					t.Fatalf("%d partitions instead of %d: %v", len(f.Assigned()), n, err)
				}
			}
		}
		goes := open("goes")
		until(goes, testPartitions)
		stays := open("stays")
		shared := make(chan struct{})
		go func() {
			defer close(shared)
			until(goes, testPartitions/2)
		}()
		until(stays, testPartitions/2)
		<-shared
		goes.Close()
		until(stays, testPartitions)
	})
}
