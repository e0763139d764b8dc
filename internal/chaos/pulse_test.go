package chaos

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/suite"
)

const (
	// pulseEvery is the pause between two records of the probe. pulseUsual bounds the time of one write if the broker
	// isn't stalled. On an idle machine a write takes 2 to 10 ms.
	pulseEvery = 50 * time.Millisecond
	pulseUsual = 100 * time.Millisecond
)

// brokerProbe writes small records to a broker, without the proxies, and measures how long each takes. It finds the
// periods in which a busy machine stalled the broker. Waybill's time limits don't apply to them.
type brokerProbe struct {
	mu   sync.Mutex
	slow []period // the writes that took longer than usual
	beat period   // the current write
}

// startBrokerProbe runs a probe until the test ends. The broker may be killed and restarted.
func startBrokerProbe(t *testing.T, cfg kafka.Config, topic string) *brokerProbe {
	t.Helper()
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	within, stop := context.WithTimeout(t.Context(), suite.Patience)
	defer stop()
	if _, err := admin.EnsureTopic(within, topic, 1); err != nil {
		t.Fatal(err)
	}
	out, err := kafka.OpenProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &brokerProbe{}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { p.run(ctx, out, topic) })
	t.Cleanup(func() { cancel(); done.Wait(); out.Close() })
	return p
}

func (p *brokerProbe) run(ctx context.Context, out *kafka.Producer, topic string) {
	for sleep(ctx, pulseEvery) {
		p.mu.Lock()
		p.beat = period{from: time.Now()}
		p.mu.Unlock()
		// A failed write counts too, because its duration is what is measured.
		_ = out.Send(ctx, events.Record{Topic: topic, Value: []byte("beat")})
		p.mu.Lock()
		if p.beat.to = time.Now(); p.beat.took() > pulseUsual {
			p.slow = append(p.slow, p.beat)
		}
		p.mu.Unlock()
	}
}

func (s period) took() time.Duration { return s.to.Sub(s.from) }

// all returns the slow writes, including the current one.
func (p *brokerProbe) all() []period {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.slow[:len(p.slow):len(p.slow)]
	if now := time.Now(); p.beat.to.IsZero() && !p.beat.from.IsZero() && now.Sub(p.beat.from) > pulseUsual {
		all = append(all, period{p.beat.from, now})
	}
	return all
}

// stalledTime returns for how long the broker was slower than usual between two instants.
func (p *brokerProbe) stalledTime(from, to time.Time) (sum time.Duration) {
	for _, s := range p.all() {
		begin, end := s.from, s.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		sum += max(0, end.Sub(begin))
	}
	return sum
}

// mayBeDelayed reports whether a record that the broker appended at an instant may have been sent long before. That is
// so during a write that took longer than bound, and shortly after it.
func (p *brokerProbe) mayBeDelayed(at time.Time, bound time.Duration) bool {
	for _, s := range p.all() {
		if s.took() > bound && at.After(s.from) && at.Before(s.to.Add(s.took())) {
			return true
		}
	}
	return false
}
