package console

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
)

// recordingOf is a recording of one task, t, whose events are given.
func recordingOf(t testing.TB, records []events.Record) *recording {
	w := newRecording(t)
	clear(w.records)
	p := events.Partition([]byte("t"), w.partitions)
	for i := range records {
		records[i].Partition = p
	}
	w.records[p], w.now = records, records[len(records)-1].Time
	return w
}

// stateAt asks for the state of task t as of an event.
func stateAt(t *testing.T, h http.Handler, seq int) (v consoleapi.TaskAtEvent) {
	t.Helper()
	r := answers(h.(*Console), http.MethodGet, fmt.Sprintf("%s/tasks/t/states?seq=%d", api, seq), "127.0.0.1:1")
	if err := json.Unmarshal(r.Body.Bytes(), &v); err != nil || r.Code != http.StatusOK {
		t.Fatalf("event %d: %d %s", seq, r.Code, r.Body)
	}
	return v
}

// wantStates are the states as of some events, folded from the first event.
func wantStates(t *testing.T, records []events.Record, seqs ...int) map[int]string {
	t.Helper()
	want, s := map[int]string{}, replay.NewStepper(replay.Until{}, false)
	for i := range records {
		step, err := s.Add(&records[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, seq := range seqs {
			if seq == i+1 {
				want[seq] = encoded(t, step.Changes) + encoded(t, s.View())
			}
		}
	}
	return want
}

// A state that is folded from a kept fold is that of a fold from the first event, in every order of requests, and reads
// few events. The kept folds of a log that was recreated aren't used.
func TestStatesFromKeptFolds(t *testing.T) {
	const n = 3*checkpointEvents + 50
	records := longHistory(t, n)
	w := recordingOf(t, records)
	h := w.console(t, nil).Config.Handler
	seqs := []int{1, 2, checkpointEvents - 1, checkpointEvents, checkpointEvents + 1, 2 * checkpointEvents, n - 1, n}
	for range 20 {
		seqs = append(seqs, 1+rand.IntN(n))
	}
	want := wantStates(t, records, seqs...)
	compare := func(seq int) {
		t.Helper()
		if got := stateAt(t, h, seq); got.Seq != uint64(seq) || encoded(t, got.Changes)+encoded(t, got.State.TaskView) != want[seq] {
			t.Errorf("event %d: %s\nwant %s", seq, encoded(t, got), want[seq])
		}
	}
	for range 3 {
		rand.Shuffle(len(seqs), func(i, j int) { seqs[i], seqs[j] = seqs[j], seqs[i] })
		for _, seq := range seqs {
			compare(seq)
		}
	}
	for _, seq := range seqs {
		before := w.readEvents.Load()
		if compare(seq); w.readEvents.Load()-before > checkpointEvents {
			t.Errorf("event %d: %d events were read", seq, w.readEvents.Load()-before)
		}
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, seq := range seqs {
				compare(seq)
			}
		})
	}
	all.Wait()
	p := records[0].Partition
	w.records[p] = longHistory(t, n)
	for i := range w.records[p] {
		w.records[p][i].Partition = p
	}
	changed := w.records[p][0]
	other, err := events.ReadEvent(&changed)
	if err != nil {
		t.Fatal(err)
	}
	other.Fact.(*events.TaskReceived).Input = []byte(`{"other":true}`)
	w.records[p] = rechained(t, w.records[p], other)
	want = wantStates(t, w.records[p], seqs...)
	for _, seq := range seqs {
		compare(seq)
	}
}

// rechained returns a history with another first event.
func rechained(t *testing.T, records []events.Record, first *events.Event) []events.Record {
	t.Helper()
	var f events.Fold
	out := make([]events.Record, len(records))
	for i := range records {
		e := first
		if i > 0 {
			var err error
			if e, err = events.ReadEvent(&records[i]); err != nil {
				t.Fatal(err)
			}
			e.Prev = f.Task.Prev
		}
		out[i] = e.Record(events.DefaultNamespace, "test", records[i].Partition, e.Seal(f.Task))
		out[i].Offset, out[i].Time = records[i].Offset, records[i].Time
		if _, err := f.Add(&out[i]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// The bytes of the kept folds are bounded, and the tasks asked for last are kept.
func TestKeptFoldsAreBounded(t *testing.T) {
	records := longHistory(t, 2*checkpointEvents)
	s := replay.NewStepper(replay.Until{}, false)
	for i := range records {
		s.Skip(&records[i], nil)
	}
	s.Task().Input = make([]byte, checkpointBytesMax/4)
	var c checkpoints
	for i := range 3 * checkpointTasksMax {
		c.keep(fmt.Sprint(i), []checkpoint{{events: checkpointEvents, state: s.Clone()}})
		if len(c.tasks) > checkpointTasksMax || c.bytes > checkpointBytesMax || c.tasks[len(c.tasks)-1].id != fmt.Sprint(i) {
			t.Fatalf("%d tasks, %d bytes", len(c.tasks), c.bytes)
		}
	}
	if len(c.tasks) != 3 {
		t.Errorf("%d tasks are kept, want 3 of a quarter of the bytes", len(c.tasks))
	}
	s.Task().Input = make([]byte, 2*checkpointBytesMax)
	if c.keep("large", []checkpoint{{events: checkpointEvents, state: s.Clone()}}); len(c.tasks) != 0 || c.bytes != 0 {
		t.Errorf("%d tasks, %d bytes", len(c.tasks), c.bytes)
	}
}

// BenchmarkStates measures states of a task with many events, without the network: the first one asked for, and then one
// after the other.
func BenchmarkStates(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		w := recordingOf(b, longHistory(b, n))
		h := w.console(b, nil).Config.Handler.(*Console)
		ask := func(seq int) {
			if r := answers(h, http.MethodGet, fmt.Sprintf("%s/tasks/t/states?seq=%d", api, seq), "127.0.0.1:1"); r.Code != http.StatusOK {
				b.Fatal(r.Code, r.Body)
			}
		}
		b.Run(fmt.Sprintf("events=%d/first", n), func(b *testing.B) {
			for b.Loop() {
				h.checkpoints.forget("t")
				ask(n)
			}
		})
		b.Run(fmt.Sprintf("events=%d/next", n), func(b *testing.B) {
			i := 0
			for b.Loop() {
				ask(1 + i*7919%n)
				i++
			}
		})
	}
}
