package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestGathering: only who had many records waits for more, and only until its time
// is over since then.
func TestGathering(t *testing.T) {
	last := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		took  int
		since time.Duration
		want  bool
	}{
		{0, 0, false},
		{1, time.Millisecond, false},
		{busyRecords - 1, 0, false},
		{busyRecords, 0, true},
		{DefaultMaxPollRecords, gatherFor - 1, true},
		{DefaultMaxPollRecords, gatherFor, false},
		{DefaultMaxPollRecords, time.Hour, false},
	} {
		p := poller{gather: gatherFor, last: last, took: c.took}
		if d := p.gathering(last.Add(c.since)); (d > 0) != c.want || c.want && d != gatherFor-c.since {
			t.Errorf("%v after a poll of %d records it waits %v; that it waits is to be %v", c.since, c.took, d, c.want)
		}
	}
	if p := (poller{last: last, took: DefaultMaxPollRecords}); p.gathering(last) > 0 {
		t.Error("it waits although it is not to gather")
	}
}

// TestWakeEndsGathering: who waits for more records is woken as if he waited for the
// first.
func TestWakeEndsGathering(t *testing.T) {
	client, err := kgo.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	p := poller{client: client, wait: time.Hour, max: 1, gather: time.Hour, last: time.Now(), took: busyRecords}
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		for !p.ending() {
			time.Sleep(time.Millisecond)
		}
		p.wake()
	}()
	if fetches, waited := p.poll(t.Context()); fetches.NumRecords() > 0 || waited {
		t.Errorf("a poll that was woken gave %d records, and waited to the end: %v", fetches.NumRecords(), waited)
	}
	<-woken
}

// ending reports whether a poll blocks that can be ended.
func (p *poller) ending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end != nil
}
