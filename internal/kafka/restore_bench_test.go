package kafka

import (
	"flag"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

var benchLog = flag.String("log", "", "BenchmarkReadLog: the address of a broker that has a log of events; empty: passed over")

// BenchmarkReadLog is what reading a log takes of this process, to the end that it has: by a
// client that is polled and does nothing with what it gets, and by a Restorer.
//
//	go test ./internal/kafka -run xxx -bench ReadLog -benchtime 1x -log 127.0.0.1:9092
func BenchmarkReadLog(b *testing.B) {
	if *benchLog == "" {
		b.Skip("no -log")
	}
	cfg := Config{Brokers: []string{*benchLog}, Namespace: events.DefaultNamespace, ClientID: "bench"}
	topic := cfg.Namespace.Events()
	r, err := OpenRestorer(cfg, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	readAll := func(b *testing.B, lend bool) (n int) {
		counts := make(chan int, 1<<20)
		if _, err := r.ReadAll(b.Context(), topic, Range{Apart: true, Lend: lend}, func(rs []events.Record) error {
			counts <- len(rs)
			return nil
		}, nil); err != nil {
			b.Fatal(err)
		}
		close(counts)
		for c := range counts {
			n += c
		}
		return n
	}
	want := readAll(b, true)
	for _, way := range []struct {
		name string
		read func(b *testing.B) int
	}{
		{"client", func(b *testing.B) int { return pollAll(b, cfg, topic, want) }},
		{"own", func(b *testing.B) int { return readAll(b, false) }},
		{"lent", func(b *testing.B) int { return readAll(b, true) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			before, n := processorTime(b), 0
			for b.Loop() {
				n += way.read(b)
			}
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(n), "cpu-ns/record")
		})
	}
}

// pollAll reads so many records with a client of its own.
func pollAll(b *testing.B, cfg Config, topic string, want int) (n int) {
	cl, err := kgo.NewClient(append(cfg.options(), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxPartitionBytes(readerMaxBytes))...)
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	for n < want {
		n += cl.PollFetches(b.Context()).NumRecords()
	}
	return n
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
