package brokerclock

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestClockIsOffByTheFastestDeliveryOfTheWindow checks that for any skew and delays, the clock is behind the broker's
// clock by the least delay of the window. It is never ahead.
func TestClockIsOffByTheFastestDeliveryOfTheWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.UnixMilli(1_700_000_000_000)
		skew := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "skew"))
		w := offsetWindow{start: start}
		type sample struct {
			at    time.Duration
			delay time.Duration
		}
		var samples []sample
		elapsed := time.Duration(0)
		for range rapid.IntRange(1, 50).Draw(t, "records") {
			elapsed += time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "pause"))
			delay := time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "delay"))
			local := start.Add(elapsed)
			w.observe(local.Add(-skew).Add(-delay), local)
			samples = append(samples, sample{elapsed, delay})
			lag := local.Add(-skew).Sub(w.now(local))
			// The window is between 55 and 60 s long, because it consists of whole buckets.
			atMost, atLeast := delay, delay
			for _, s := range samples {
				if elapsed-s.at <= windowLength-bucketLength {
					atMost = min(atMost, s.delay)
				}
				if elapsed-s.at <= windowLength {
					atLeast = min(atLeast, s.delay)
				}
			}
			if lag > atMost || lag < atLeast {
				t.Fatalf("behind the broker by %v, want %v to %v", lag, atLeast, atMost)
			}
		}
	})
}

func TestClockForgetsAfterAMinuteAndKeepsTheLastWhenItIsQuiet(t *testing.T) {
	start := time.UnixMilli(1_700_000_000_000)
	w := offsetWindow{start: start}
	at := func(d time.Duration) time.Time { return start.Add(d) }
	if got := w.offset(at(0)); got != 0 {
		t.Errorf("before the first record: %v", got)
	}
	w.observe(at(-2*time.Second), at(0)) // this clock is ahead by 2 s
	w.observe(at(25*time.Second), at(30*time.Second))
	if got := w.offset(at(31 * time.Second)); got != 2*time.Second {
		t.Errorf("offset %v, want the least", got)
	}
	if got := w.offset(at(62 * time.Second)); got != 5*time.Second {
		t.Errorf("offset %v after the least is a minute old", got)
	}
	if got := w.offset(at(time.Hour)); got != 5*time.Second {
		t.Errorf("offset %v after a quiet hour", got)
	}
	w.observe(at(time.Hour+10*time.Second), at(time.Hour)) // the broker's clock was set forward
	if got := w.offset(at(time.Hour)); got != -10*time.Second {
		t.Errorf("offset %v, want to follow at once", got)
	}
	w.observe(at(0), at(5*time.Second)) // observed by a goroutine that slept for an hour
	if got := w.offset(at(time.Hour)); got != -10*time.Second {
		t.Errorf("offset %v after a stale observation", got)
	}
}

func TestClockNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		now := time.Now()
		c.Observe(now.Add(900*time.Millisecond), now)
		first := c.Now()
		if want := now.Add(900 * time.Millisecond); !first.Equal(want) {
			t.Fatalf("%v, want %v", first, want)
		}
		if c.Offset() != -900*time.Millisecond {
			t.Errorf("offset %v", c.Offset())
		}
		// One minute later, the broker's clock is right again.
		time.Sleep(61 * time.Second)
		before := c.Now()
		now = time.Now()
		c.Observe(now, now)
		if got := c.Now(); !got.Equal(before) {
			t.Errorf("%v, want to stand still at %v", got, before)
		}
		time.Sleep(800 * time.Millisecond)
		if got := c.Now(); !got.Equal(before) {
			t.Errorf("%v, want to stand still at %v", got, before)
		}
		time.Sleep(200 * time.Millisecond)
		if got := c.Now(); !got.Equal(time.Now()) {
			t.Errorf("%v, want %v again", got, time.Now())
		}
	})
}

// TestClockThatWasWrongIsSet checks that a process whose clock is an hour ahead corrects it with its first record. It
// must not stall for an hour.
func TestClockThatWasWrongIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClockWith(func() time.Time { return time.Now().Add(time.Hour) })
		if got, want := c.Now(), time.Now().Add(time.Hour); !got.Equal(want) || c.Fresh() {
			t.Errorf("%v, want %v; fresh: %v", got, want, c.Fresh())
		}
		c.Observe(time.Now(), c.processNow())
		if got, want := c.Now(), time.Now(); !got.Equal(want) || !c.Fresh() {
			t.Errorf("%v, want %v; fresh: %v", got, want, c.Fresh())
		}
		time.Sleep(time.Minute + bucketLength)
		if c.Fresh() || c.Offset() != time.Hour {
			t.Errorf("after a quiet minute: fresh %v, offset %v", c.Fresh(), c.Offset())
		}
	})
}

// TestClockIsSetOnlyWhereItCanNotBeRight checks an observation of an interval in which a record was appended. A clock
// within the interval stays. Any other clock is set to the end of the interval with which it isn't ahead of the
// broker's.
func TestClockIsSetOnlyWhereItCanNotBeRight(t *testing.T) {
	const slow = time.Second
	for _, test := range []struct{ known, ahead, want time.Duration }{
		{known: 0, ahead: -slow / 2, want: 0},
		{known: time.Hour, ahead: time.Hour - slow/2, want: time.Hour},
		{known: 0, ahead: time.Minute, want: time.Minute + slow},
		{known: time.Minute, ahead: -time.Minute, want: -time.Minute + slow},
	} {
		local := time.UnixMilli(1_700_000_000_000)
		c := NewClockWith(func() time.Time { return local })
		c.Observe(local.Add(-test.known), local)
		local = local.Add(2 * windowLength)
		sent := local
		local = local.Add(slow)
		c.observeInterval(sent.Add(-test.ahead), sent, local)
		if got := c.Offset(); got != test.want || !c.Fresh() {
			t.Errorf("known to be %v ahead, found to be ahead by %v to %v: taken to be %v", test.known, test.ahead, test.ahead+slow, got)
		}
	}
}

func TestClockIsSharedByGoroutines(t *testing.T) {
	c := NewClock()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := time.Time{}
			for i := range 2000 {
				now := time.Now()
				c.Observe(now.Add(time.Duration(i%100)*time.Millisecond), now)
				got := c.Now()
				if got.Before(last) {
					t.Errorf("went back from %v to %v", last, got)
				}
				last = got
			}
		})
	}
	wg.Wait()
}
