package verify

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// tasks writes correct tasks of three steps each, with their inputs. It passes them to a checker as `waybill verify`
// does.
func tasks(t testing.TB, n int) (inputs, log []events.Record) {
	h := &history{t: t, o: Options{}, c: New(Options{}), at: start0}
	h.claim(1)
	for i := range n {
		h.id, h.state = fmt.Sprintf("order-%07d", i), nil
		h.processed()
	}
	return h.fed, h.all
}

// BenchmarkEvent measures one event on one core, as in a log with trimmed inboxes, and with its input. -cpu 1 includes
// the garbage collector.
func BenchmarkEvent(b *testing.B) {
	inputs, log := tasks(b, 20_000)
	for _, tt := range []struct {
		name   string
		inputs []events.Record
	}{{"trimmed", nil}, {"inputs", inputs}} {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c := New(Options{Inputs: tt.inputs != nil})
				for i := range tt.inputs {
					c.Input(&tt.inputs[i])
				}
				for i := range log {
					c.Event(&log[i])
				}
				if r := c.Finish(start0); r.Broken > 0 {
					b.Fatal(r.Faults)
				}
			}
			b.ReportMetric(float64(b.N*len(log))/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkHash measures the part of that for the chain of prev: the hash of each event.
func BenchmarkHash(b *testing.B) {
	_, log := tasks(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		for i := range log {
			ceType, _ := log[i].Header(events.HeaderType)
			events.Hash(ceType, log[i].Value)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(log)), "ns/event")
}

// The checker retains little of an ended task. A log of 10 million events has about a million tasks.
func TestEndedTasksAreKeptInShort(t *testing.T) {
	const n, mostBytes = 5000, 600
	inputs, log := tasks(t, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // frees the contents of pools
	runtime.ReadMemStats(&before)
	c := New(Options{Inputs: true})
	for i := range inputs {
		c.Input(&inputs[i])
	}
	for i := range log {
		c.Event(&log[i])
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if r := c.Finish(start0); r.Broken > 0 || r.States[events.StateProcessed] != n {
		t.Fatal(r.States, r.Faults)
	}
	each := int64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%d bytes for each of %d tasks that have ended", each, n)
	if each > mostBytes {
		t.Errorf("%d bytes for each task that has ended; at most %d", each, mostBytes)
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(inputs)
	runtime.KeepAlive(log)
}
