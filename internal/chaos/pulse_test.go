package chaos

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

const (
	// pulseEvery is the pause between two records of a pulse, and pulseUsual how long
	// one takes at most where the machine serves the broker. One alone takes 2 to 10 ms.
	pulseEvery = 50 * time.Millisecond
	pulseUsual = 100 * time.Millisecond
)

// pulse writes a small record to a broker again and again, past all proxies, and keeps how long
// each took. What is promised within a time is promised by Waybill, and not by a machine
// that others keep so busy that the broker stands still: of such times this tells, from
// outside of what is tested.
type pulse struct {
	mu   sync.Mutex
	slow []spell // the beats that took longer than usual
	beat spell   // the newest
}

// startPulse lets a pulse beat until the test ends. The broker may be killed and come back.
func startPulse(t *testing.T, cfg kafka.Config, topic string) *pulse {
	t.Helper()
	admin, err := kafka.OpenAdmin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	within, stop := context.WithTimeout(t.Context(), adminWithin)
	defer stop()
	if _, err := admin.EnsureTopic(within, topic, 1); err != nil {
		t.Fatal(err)
	}
	out, err := kafka.OpenProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &pulse{}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { p.run(ctx, out, topic) })
	t.Cleanup(func() { cancel(); done.Wait(); out.Close() })
	return p
}

func (p *pulse) run(ctx context.Context, out *kafka.Producer, topic string) {
	for sleep(ctx, pulseEvery) {
		p.mu.Lock()
		p.beat = spell{from: time.Now()}
		p.mu.Unlock()
		// An error ends a beat too: the time until it came is what counts.
		_ = out.Send(ctx, events.Record{Topic: topic, Value: []byte("beat")})
		p.mu.Lock()
		if p.beat.to = time.Now(); p.beat.took() > pulseUsual {
			p.slow = append(p.slow, p.beat)
		}
		p.mu.Unlock()
	}
}

func (s spell) took() time.Duration { return s.to.Sub(s.from) }

// all are the slow beats, the one that goes on included.
func (p *pulse) all() []spell {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.slow[:len(p.slow):len(p.slow)]
	if now := time.Now(); p.beat.to.IsZero() && !p.beat.from.IsZero() && now.Sub(p.beat.from) > pulseUsual {
		all = append(all, spell{p.beat.from, now})
	}
	return all
}

// stood is how long, of a time, the broker took longer than usual.
func (p *pulse) stood(from, to time.Time) (sum time.Duration) {
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

// held reports whether a record that the broker has appended at an instant may have been sent long before:
// within a beat that took longer than a bound, or soon after, when what waited comes.
func (p *pulse) held(at time.Time, bound time.Duration) bool {
	for _, s := range p.all() {
		if s.took() > bound && at.After(s.from) && at.Before(s.to.Add(s.took())) {
			return true
		}
	}
	return false
}
