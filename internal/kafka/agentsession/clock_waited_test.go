package agentsession_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestWhatWaitedTellsNoTime checks that the clock ignores requests that waited, in the client's buffer or before they
// were fetched. If the wait counted as a clock difference, an overloaded agent would write replies after complete-by.
func TestWhatWaitedTellsNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const busy, quick = 500 * time.Millisecond, 10 * time.Millisecond
		r := newRequests(t, kafkatest.Virtual(t), 1)
		clock := brokerclock.NewClock()
		s := r.open(func(c *agentsession.Config) { c.Clock = clock })
		r.Write(0, 0, 1)
		r.poll(s, 1) // from here on, the session knows the end of the log
		waits := func(in string) {
			t.Helper()
			r.poll(s, 1)
			if off := clock.Offset(); off > quick || clock.Fresh() {
				t.Errorf("a request that waited %v %s: the clock is taken to be %v ahead", busy, in, off)
			}
		}
		r.Write(0, 1, 2)
		synctest.Wait()
		r.Write(0, 2, 3) // the client fetches no more until the previous record is polled
		time.Sleep(busy) // on the bubble's clock
		waits("in the client")
		waits("to be asked for")

		polled := make(chan []string)
		go func() { polled <- r.poll(s, 2) }()
		for i := 3; i < 5; i++ {
			synctest.Wait()
			r.Write(0, i, i+1)
		}
		<-polled
		if off := clock.Offset(); off > quick || !clock.Fresh() {
			t.Errorf("requests that were waited for: the clock is taken to be %v ahead, told: %v", off, clock.Fresh())
		}
	})
}
