package instance

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"
)

// An audit's offsets in its group are written where they have moved, now and then, and again
// after a commit that failed.
func TestAuditShowsItsOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o groupOffsets
		var failure error
		var commits []map[int32]int64
		show := func(at int64, want int) {
			t.Helper()
			before := len(commits)
			err := o.show(t.Context(), map[int32]Progress{0: {Next: at}, 1: {Next: 7}}, func(_ context.Context, moved map[int32]int64) error {
				commits = append(commits, moved)
				return failure
			})
			synctest.Wait()
			if n := len(commits) - before; n != want {
				t.Errorf("at %d: %d commits, want %d", at, n, want)
			}
			if err != nil && !errors.Is(err, errors.ErrUnsupported) {
				t.Error(err)
			}
		}
		show(1, 1)
		show(2, 0) // not yet
		time.Sleep(auditShowEvery)
		show(1, 0) // nothing moved
		failure = errors.ErrUnsupported
		show(2, 1)
		failure = nil
		time.Sleep(auditShowEvery)
		show(2, 1) // it failed before
		if last := commits[len(commits)-1]; !maps.Equal(last, map[int32]int64{0: 2, 1: 7}) {
			t.Errorf("after a failure %v was committed", last)
		}
		time.Sleep(auditShowEvery)
		show(3, 1)
		if last := commits[len(commits)-1]; !maps.Equal(last, map[int32]int64{0: 3}) {
			t.Errorf("%v was committed, only partition 0 moved", last)
		}
	})
}
