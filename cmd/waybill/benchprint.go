package main

import (
	"fmt"
	"io"

	"github.com/waybill-run/waybill/internal/bench"
)

// benchTable prints a result as a table.
func benchTable(out io.Writer, r *bench.Result) error {
	w := newTable(out, "")
	l := &r.Load
	shape := "one after the other"
	if l.FanOut {
		shape = "fan-out"
	}
	w.row("Load", fmt.Sprintf("%d tasks of %d steps (%s), %d bytes of input; %s", r.Tasks, l.Steps, shape, l.Payload, benchArrivals(l)))
	w.row("Where", fmt.Sprintf("%s broker, %d partitions, %d workers; %d processors, %s %s/%s", r.Broker, l.Partitions, l.Workers, r.Machine.CPUs, r.Machine.Go, r.Machine.OS, r.Machine.Arch))
	w.row("Throughput", fmt.Sprintf("%.0f tasks/s, %.0f events/s, %.0f records/s, %s/s (%s/s on the wire), in %.1f s",
		r.TasksPerSecond, r.EventsPerSecond, r.RecordsPerSecond, bytesText(r.BytesPerSecond), bytesText(float64(r.WireBytes)/r.Seconds), r.Seconds))
	w.row("Transactions", fmt.Sprintf("%.0f/s of %.1f records, %d rolled back", r.TransactionsPerSecond, r.MeanRecords, r.RolledBack))
	w.row("Processor", fmt.Sprintf("%.1f s, %.0f µs a task: %s", r.CPUSeconds, r.CPUPerTask, r.CPUOf))
	w.row("Memory", fmt.Sprintf("%s at most, of the whole process", bytesText(float64(r.PeakMemory))))
	if f := r.Floor; f != nil {
		w.row("Floor", fmt.Sprintf("%.0f tasks/s of %d records, %.0f µs of processor time a task", f.TasksPerSecond, f.PerTask, f.CPUSeconds*1e6/float64(f.Tasks)))
		w.row("Ratio", fmt.Sprintf("%.2f of the floor", r.FloorRatio))
	}
	w.row("Verified", fmt.Sprintf("the log keeps all guarantees: %d tasks processed, %d undone (%.1f s)", r.Processed, r.Undone, r.VerifySeconds))
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	w = newTable(out, "")
	w.row("LATENCY, ms", "P50", "P90", "P99", "P99.9", "MAX")
	for _, x := range []struct {
		what string
		q    bench.Quantiles
	}{{"submit to ack", r.Latency.Ack}, {"step hop", r.Latency.Hop}, {"task", r.Latency.Task}} {
		if x.q.Count > 0 {
			w.row(x.what, millis(x.q.P50), millis(x.q.P90), millis(x.q.P99), millis(x.q.P999), millis(x.q.Max))
		}
	}
	return w.Flush()
}

func benchArrivals(l *bench.Load) string {
	switch {
	case l.Rate > 0 && l.Inflight > 0:
		return fmt.Sprintf("%.0f a second, at most %d at once", l.Rate, l.Inflight)
	case l.Rate > 0:
		return fmt.Sprintf("%.0f a second", l.Rate)
	}
	return fmt.Sprintf("%d at once", l.Inflight)
}

func millis(ms float64) string { return fmt.Sprintf("%.1f", ms) }

// bytesText formats a number of bytes for people.
func bytesText(n float64) string {
	for _, unit := range []string{"B", "KB", "MB"} {
		if n < 1000 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.2f GB", n)
}
