package bench

import (
	"runtime"
	"time"
)

// Result is the result of a run. Durations are in the unit that ends their names.
type Result struct {
	Broker  string  `json:"broker"` // embedded or kafka
	Load    Load    `json:"load"`
	Machine Machine `json:"machine"`

	Tasks          int     `json:"tasks"`
	Processed      int64   `json:"processed"` // of the whole run, the warm-up included
	Undone         int64   `json:"undone"`
	TimedOut       int64   `json:"attempts_timed_out"`
	Seconds        float64 `json:"duration_seconds"`
	TasksPerSecond float64 `json:"tasks_per_second"`

	Events          int64   `json:"events"`
	EventsPerSecond float64 `json:"events_per_second"`
	EventBytes      float64 `json:"event_bytes"` // of one event: key, value and headers, on average

	Records          int64   `json:"records"` // written to all topics
	RecordsPerSecond float64 `json:"records_per_second"`
	Bytes            int64   `json:"bytes"` // the same, before compression
	BytesPerSecond   float64 `json:"bytes_per_second"`
	WireBytes        int64   `json:"wire_bytes"` // and after

	Latency Latency `json:"latency"`

	CPUSeconds            float64 `json:"cpu_seconds"` // of the whole process, see CPUOf
	CPUOf                 string  `json:"cpu_of"`
	CPUPerTask            float64 `json:"cpu_microseconds_per_task"`
	PeakMemory            int64   `json:"peak_memory_bytes"` // resident, of the whole process
	Transactions          int64   `json:"transactions"`
	TransactionsPerSecond float64 `json:"transactions_per_second"`
	MeanRecords           float64 `json:"records_per_transaction"`
	RolledBack            int64   `json:"transactions_rolled_back"`
	FloorPerSecond        float64 `json:"floor_tasks_per_second,omitempty"`
	FloorRatio            float64 `json:"floor_ratio,omitempty"`
	Floor                 *Floor  `json:"floor,omitempty"`

	Verified      bool    `json:"verified"`
	VerifySeconds float64 `json:"verify_seconds"`
}

// Machine describes the machine of the run.
type Machine struct {
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

// Latency is the three latencies.
type Latency struct {
	Ack  Quantiles `json:"submit_to_ack"`
	Hop  Quantiles `json:"step_hop"`
	Task Quantiles `json:"task"`
}

// Quantiles are a distribution, in milliseconds.
type Quantiles struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p99_9_ms"`
	Max   float64 `json:"max_ms"`
}

func quantiles(h *Histogram) Quantiles {
	return Quantiles{Count: h.Count(), P50: ms(h.Quantile(0.5)), P90: ms(h.Quantile(0.9)), P99: ms(h.Quantile(0.99)), P999: ms(h.Quantile(0.999)), Max: ms(h.Max())}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func machine() Machine {
	return Machine{CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
}

// seen has the counters of an observer.
type seen struct{ events, bytes, processed, undone, expired int64 }

func (o *observer) count() seen {
	return seen{o.events.Load(), o.bytes.Load(), o.processed.Load(), o.undone.Load(), o.expired.Load()}
}

func (s seen) since(from seen) seen {
	return seen{s.events - from.events, s.bytes - from.bytes, s.processed, s.undone, s.expired}
}

// cpuOf says whose CPU time was measured.
func cpuOf(s *environment) string {
	if s.broker != nil {
		return "roles, agents, load generator and broker: all are in this process"
	}
	return "roles, agents and load generator; the brokers are other processes"
}

func newResult(r *run, used reading, seen seen, took time.Duration) *Result {
	s := took.Seconds()
	tasks := r.o.Load.Tasks
	return &Result{
		Broker: r.env.brokerKind(), Load: r.o.Load, Machine: machine(),
		Tasks: tasks, Processed: seen.processed, Undone: seen.undone, TimedOut: seen.expired, Seconds: s, TasksPerSecond: float64(tasks) / s,
		Events: seen.events, EventsPerSecond: float64(seen.events) / s, EventBytes: ratio(seen.bytes, seen.events),
		Records: used.records, RecordsPerSecond: float64(used.records) / s, Bytes: used.plainBytes, BytesPerSecond: float64(used.plainBytes) / s, WireBytes: used.wireBytes,
		Latency:    Latency{quantiles(&r.tally.ack), quantiles(&r.tally.hop), quantiles(&r.tally.task)},
		CPUSeconds: used.cpu.Seconds(), CPUOf: cpuOf(r.env), CPUPerTask: used.cpu.Seconds() * 1e6 / float64(tasks), PeakMemory: statusMemory("VmHWM"),
		Transactions: used.transactions, TransactionsPerSecond: float64(used.transactions) / s, MeanRecords: ratio(used.committed, used.transactions), RolledBack: used.rolled,
	}
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// compareWithFloor adds the floor.
func (r *Result) compareWithFloor(f *Floor) {
	r.Floor, r.FloorPerSecond, r.FloorRatio = f, f.TasksPerSecond, r.TasksPerSecond/f.TasksPerSecond
}
