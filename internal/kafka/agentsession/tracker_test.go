package agentsession

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTrackerLosesNothingAndRepeatsOnlyWhatItForgot models a partition and its successive owners. No request is lost:
// all below the commit are finished. No request is delivered again after its finish was committed in metadata with room
// for it.
func TestTrackerLosesNothingAndRepeatsOnlyWhatItForgot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// The offsets of the log's visible records; the others are gaps.
		var log []int64
		at := rapid.Int64Range(0, 5).Draw(t, "start")
		for range rapid.IntRange(1, 60).Draw(t, "records") {
			log = append(log, at)
			at += rapid.SampledFrom([]int64{1, 1, 1, 2, 7}).Draw(t, "gap")
		}
		finished := make(map[int64]bool)
		committed, metadata := int64(-1), ""
		for range rapid.IntRange(1, 6).Draw(t, "owners") {
			tr, err := NewTracker(committed, metadata)
			if err != nil {
				t.Fatal(err)
			}
			open := make(map[int64]bool)
			next, _ := slices.BinarySearch(log, max(committed, 0))
			settled := make(map[int64]bool) // requests that the last commit says are finished
			for _, o := range log {
				settled[o] = tr.isFinished(o)
			}
			for range rapid.IntRange(0, 80).Draw(t, "steps") {
				if len(open) > 0 && rapid.Bool().Draw(t, "finish") {
					keys := make([]int64, 0, len(open))
					for o := range open {
						keys = append(keys, o)
					}
					slices.Sort(keys)
					o := rapid.SampledFrom(keys).Draw(t, "which")
					tr.Done(o)
					tr.Done(o)
					finished[o] = true
					delete(open, o)
				} else if next < len(log) {
					o := log[next]
					next++
					work := tr.Deliver(o)
					if work == settled[o] {
						t.Fatalf("offset %d delivered for work %v, though the commit said finished %v", o, work, settled[o])
					}
					if !work && !finished[o] {
						t.Fatalf("offset %d was skipped and is not finished", o)
					}
					if work {
						open[o] = true
					}
				}
				checkTracker(t, tr, open)
				committed, metadata = tr.Commit()
				for _, o := range log {
					if o < committed && !finished[o] {
						t.Fatalf("committed %d, but %d is not finished", committed, o)
					}
				}
			}
		}
	})
}

func checkTracker(t *rapid.T, tr *Tracker, open map[int64]bool) {
	if int(tr.Open()) != len(open) && tr.low >= 0 {
		t.Fatalf("%d open, %d are: %+v", tr.Open(), len(open), *tr)
	}
	last := tr.low
	for _, s := range tr.done {
		if s.from <= last || s.to <= s.from {
			t.Fatalf("ranges touch or are empty: %+v", *tr)
		}
		last = s.to
	}
}

func TestTrackerMetadataKeepsTheNearestWhenItIsFull(t *testing.T) {
	tr, err := NewTracker(1_000_000, "")
	must(t, err)
	const n = 20_000
	for i := range int64(n) {
		tr.Deliver(1_000_000 + i)
	}
	for i := int64(1); i < n; i += 2 {
		tr.Done(1_000_000 + i)
	}
	offset, metadata := tr.Commit()
	const most = commitMetadataMaxBytes - topicMaxBytes - circuitMaxBytes // the rest is reserved for the topic and the circuit
	if len(metadata) > most || len(metadata) < most-8 {
		t.Errorf("%d bytes of metadata, bound %d", len(metadata), most)
	}
	next, err := NewTracker(offset, metadata)
	must(t, err)
	kept := int64(0)
	for i := range int64(n) {
		if work := next.Deliver(1_000_000 + i); work == (i%2 == 0) {
			continue
		} else if !work {
			t.Fatalf("offset +%d is not finished and was skipped", i)
		}
		if kept == 0 {
			kept = i
		}
	}
	if kept < 3000 {
		t.Errorf("the first forgotten offset is +%d", kept)
	}
	t.Logf("finished by turns, %d bytes hold the nearest %d offsets", len(metadata), kept)
}

func TestTrackerRestartsWithTheLog(t *testing.T) {
	tr, err := NewTracker(100, encodeSpans(100, []span{{105, 110}}))
	must(t, err)
	if !tr.Deliver(3) || !tr.Deliver(4) {
		t.Error("after the log restarted at 3, its records are not delivered")
	}
	tr.Done(3)
	if offset, metadata := tr.Commit(); offset != 4 || metadata != "" {
		t.Errorf("commit %d, %q", offset, metadata)
	}
	if tr.Done(4); !tr.Deliver(4) {
		t.Error("a log that restarted within an assignment has its records skipped")
	}
}

func TestTrackerRefusesForeignMetadataButGoesOn(t *testing.T) {
	for _, metadata := range []string{"consumer-1", "w1:!!", "w1:gA", "w1:AAA", "w2:AQE"} {
		tr, err := NewTracker(7, metadata)
		if err == nil {
			t.Errorf("%q was understood", metadata)
		}
		if offset, _ := tr.Commit(); offset != 7 || !tr.Deliver(7) {
			t.Errorf("%q: the offset is not kept", metadata)
		}
	}
}

// TestTrackerMetadataIsStable checks the encoding of the metadata. It must not change, because commits outlive
// upgrades.
func TestTrackerMetadataIsStable(t *testing.T) {
	const golden = "w1:AQIDrAI"
	spans := []span{{11, 13}, {16, 316}}
	if got := encodeSpans(10, spans); got != golden {
		t.Errorf("got %q, want %q", got, golden)
	}
	if got, err := decodeSpans(10, golden); err != nil || !slices.Equal(got, spans) {
		t.Errorf("got %v, %v", got, err)
	}
}

func FuzzTrackerMetadata(f *testing.F) {
	f.Add(int64(10), "w1:AQIDrAI")
	f.Fuzz(func(t *testing.T, low int64, metadata string) {
		low &= 1<<50 - 1
		tr, err := NewTracker(low, metadata)
		if err != nil {
			return
		}
		if offset, _ := tr.Commit(); offset != low {
			t.Errorf("offset %d of a commit at %d", offset, low)
		}
		last := low
		for _, s := range tr.done {
			if s.from <= last || s.to <= s.from {
				t.Fatalf("ranges %v", tr.done)
			}
			last = s.to
		}
	})
}
