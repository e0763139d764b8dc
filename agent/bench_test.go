package agent

import (
	"context"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
)

// benchSession returns polls with a fixed number of requests, and acknowledges replies at once.
type benchSession struct {
	polls chan []events.Record
	done  chan struct{}
}

func (s *benchSession) Poll(ctx context.Context) ([]events.Record, error) {
	select {
	case rs := <-s.polls:
		return rs, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *benchSession) Done(int32, int64)                       { s.done <- struct{}{} }
func (*benchSession) CommitSoon()                               {}
func (*benchSession) Send(context.Context, events.Record) error { return nil }
func (*benchSession) Pause()                                    {}
func (*benchSession) Resume()                                   {}
func (*benchSession) Close(context.Context) error               { return nil }

// BenchmarkRequest measures the cost of a request without its handler and without sending its reply. Each poll returns
// 500 requests.
func BenchmarkRequest(b *testing.B) {
	const poll = 500
	s := &benchSession{polls: make(chan []events.Record), done: make(chan struct{}, poll)}
	clock := brokerclock.NewClock()
	cfg := Config{Source: "bench", Concurrency: poll, Clock: clock.Now,
		Open: func(context.Context) (Session, error) { return s, nil }}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, HandlerFunc(completes)) }()
	records := make([]events.Record, poll)
	for i := range records {
		records[i] = testRecord(i, time.Now().Add(time.Hour))
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%poll == 0 {
			s.polls <- records
		}
		<-s.done
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
