package scheduler

import (
	"testing"
	"testing/synctest"
)

// TestFirstPartitionsActWhileOthersLoad assigns six partitions to a worker. Two may load at the same time. The first
// ones are ready while the others load.
func TestFirstPartitionsActWhileOthersLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 6)
		open, began, may := s.cfg.Tasks, make(chan int32, 6), make(chan struct{})
		s.cfg.Tasks = func(p int32) (Tasks, error) {
			began <- p
			<-may
			return open(p)
		}
		w := s.worker(s.cluster.join(0, 1, 2, 3, 4, 5))
		ready := func() (n int) {
			for _, p := range w.partitions {
				if p.ready() {
					n++
				}
			}
			return n
		}
		for loaded := range 6 {
			if err := w.reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := w.reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if want := min(loaded+2, 6); len(began) != want || ready() != loaded {
				t.Fatalf("%d partitions are loaded or being so, want %d; %d are ready, want %d", len(began), want, ready(), loaded)
			}
			may <- struct{}{}
			synctest.Wait()
		}
		s.until(w, "all are ready", func() bool { return ready() == 6 })
	})
}
