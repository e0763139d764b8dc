package projections_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// sees checks that lookups find exactly the tasks of the model, as far as they are conclusive.
func sees(t *testing.T, v *projections.Tasks, tasks map[string]*events.Task) {
	t.Helper()
	v.BeginLookups()
	defer v.EndLookups()
	for id, want := range tasks {
		if got := v.Task(id); v.Knows(id) && (got == nil || !bytes.Equal(got.Encode(), want.Finished().Encode())) {
			t.Fatalf("task %s at offset %d: %v", id, v.Next(), got)
		}
	}
	for i := range 20 {
		if got := v.Task(fmt.Sprintf("none-%d", i)); got != nil {
			t.Fatalf("a task that isn't there: %v", got)
		}
	}
}

// TestLookupsSeeWhatIsWritten checks that lookups see every written task, on disk or not, with concurrent flushes, and
// after the partition was released, reopened or emptied.
func TestLookupsSeeWhatIsWritten(t *testing.T) {
	t.Parallel()
	for seed := range seeds(t, 12) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		fs := vfs.NewMem()
		s := open(t, fs, projections.ViewTasks)
		v := tasksOf(t, s)
		h := newHistory(seed)
		var log []events.Record
		var flushes sync.WaitGroup
		flush := func() {
			if err := s.Flush(); err != nil {
				t.Error(err)
			}
		}
		for range 80 {
			rs := h.records(rnd.IntN(60))
			log = append(log, rs...)
			apply(t, v, rs)
			switch rnd.IntN(12) {
			case 0, 1, 2:
				flushes.Go(flush)
				fallthrough
			case 3, 4, 5:
				v.Save()
			case 6, 7:
				flush()
			case 8:
				v.Close()
				v = tasksOf(t, s)
			case 9:
				v.Wipe()
			case 10:
				flushes.Wait()
				v.Close()
				closeStore(t, s)
				s = open(t, fs, projections.ViewTasks)
				v = tasksOf(t, s)
			}
			apply(t, v, log)
			sees(t, v, h.tasks)
		}
		flushes.Wait()
		v.Close()
		closeStore(t, s)
	}
}

// TestLookupsSeeASnapshot checks that lookups see the finished tasks of a snapshot, which are written concurrently with
// the view, some of them after a flush.
func TestLookupsSeeASnapshot(t *testing.T) {
	h := newHistory(4)
	rs := h.records(900)
	c := ownersTopic(t, rs)

	s := openTiny(t, vfs.NewMem(), 2000)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	load, err := v.LoadSnapshot(c.reader())
	if err != nil {
		t.Fatal(err)
	}
	tail(t, v, v.Next(), rs)
	flush := func() {
		t.Helper()
		v.Save()
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	apply(t, v, h.records(5))
	v.Save()
	if err := load(t.Context()); err != nil {
		t.Fatal(err)
	}
	sees(t, v, h.tasks)
	v.FinishLoad()
	sees(t, v, h.tasks)
	apply(t, v, h.records(50))
	flush()
	v.Save()
	sees(t, v, h.tasks)
}
