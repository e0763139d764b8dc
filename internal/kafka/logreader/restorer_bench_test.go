package logreader_test

import (
	"flag"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

var benchLog = flag.String("log", "", "BenchmarkReadLog: the address of a broker that has a log of events; empty: one on disk is written first")

// BenchmarkReadLog measures the cost of reading a log to its current end in this process: with a polling client that
// ignores the records, and with a Restorer.
//
//	go test ./internal/kafka -run xxx -bench ReadLog -benchtime 1x -log 127.0.0.1:9092
//
// Without -log, the broker runs in this process, and its cost is included.
func BenchmarkReadLog(b *testing.B) {
	s := benchSite(b)
	topic, r := s.NS.Events(), s.restorer(b, nil)
	readAll := func(b *testing.B, lend bool) (n int) {
		counts := make(chan int, 1<<20)
		if _, err := r.ReadAll(b.Context(), topic, logreader.Range{Concurrent: true, ReuseBuffers: lend}, func(rs []events.Record) error {
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
		{"client", func(b *testing.B) int { return s.pollAll(b, want) }},
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

// benchSite returns a broker with a log of events.
func benchSite(b *testing.B) *site {
	b.Helper()
	if *benchLog == "" {
		s := newSite(b, kafkatest.Embedded(b, kfake.DataDir(b.TempDir())))
		s.fill(b, 2000, 60)
		return s
	}
	const ns events.Namespace = events.DefaultNamespace
	broker := &kafkatest.Broker{Addrs: []string{*benchLog}}
	return &site{&kafkatest.Site{Broker: broker, Config: kafka.Config{Brokers: broker.Addrs, Namespace: ns, ClientID: "bench"}, NS: ns}}
}

// pollAll reads want records with a new client.
func (s *site) pollAll(b *testing.B, want int) (n int) {
	cl := s.Client(b, kgo.ConsumeTopics(s.NS.Events()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxPartitionBytes(4<<20)) // like a Restorer
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
