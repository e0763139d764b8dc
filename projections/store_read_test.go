package projections_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// TestReadsAreConsistent reads concurrently with the goroutine that applies. It checks that every answer is as of one
// offset.
func TestReadsAreConsistent(t *testing.T) {
	const seed = 8
	rs := newHistory(seed).records(1200)
	// at[next][task] is the state that a reader may see.
	at := map[int64]map[string][]byte{0: {}}
	h := newHistory(seed)
	for range rs {
		r := h.next()
		now := map[string][]byte{}
		for id, task := range h.tasks {
			now[id] = task.Finished().Encode()
		}
		at[r.Offset+1] = now
	}
	s := open(t, vfs.NewMem(), projections.ViewTasks)
	v := tasksOf(t, s)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			var last int64
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true // one more read
				default:
				}
				got := map[string][]byte{}
				asOf, err := s.ReadTasks(testPartition, func(task *events.Task) error {
					got[task.ID] = task.Encode()
					return nil
				})
				if err != nil || asOf.Next < last {
					t.Errorf("as of %d after %d: %v", asOf.Next, last, err)
				}
				last = asOf.Next
				want := at[asOf.Next]
				if len(got) != len(want) {
					t.Errorf("as of %d: %d tasks, want %d", asOf.Next, len(got), len(want))
				}
				for id, enc := range want {
					if !bytes.Equal(got[id], enc) {
						t.Errorf("as of %d: %s\n got %s\nwant %s", asOf.Next, id, got[id], enc)
					}
				}
				one, asOf, err := s.ReadTask(testPartition, string(rs[1].Key))
				if want := at[asOf.Next][string(rs[1].Key)]; err != nil || (one == nil) != (want == nil) || one != nil && !bytes.Equal(one.Encode(), want) {
					t.Errorf("as of %d: %v %v, want %s", asOf.Next, one, err, want)
				}
			}
		})
	}
	for i := range rs {
		apply(t, v, rs[i:i+1])
		if i%7 == 0 || i == len(rs)-1 {
			v.Save()
		}
	}
	close(done)
	readers.Wait()
	closeStore(t, s)
	if _, _, err := s.ReadTask(testPartition, "x"); err == nil {
		t.Error("a closed store answers")
	}
}
