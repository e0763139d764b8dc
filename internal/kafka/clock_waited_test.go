package kafka_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// A request that waited for its agent, in the client or to be asked for, says nothing of
// the time: taken for a difference of clocks, replies were written 221 ms after
// complete-by. Bug found by the simulation, of an agent under twice its load.
func TestWhatWaitedTellsNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const busy, quick = 500 * time.Millisecond, 10 * time.Millisecond
		r := newRequests(t, kafkatest.Virtual(t), 1)
		clock := kafka.NewClock()
		s := r.open(func(c *kafka.SessionConfig) { c.Clock = clock })
		r.write(0, 0, 1)
		r.poll(s, 1) // from here on the session knows the end of the log
		waits := func(in string) {
			t.Helper()
			r.poll(s, 1)
			if off := clock.Offset(); off > quick || clock.Fresh() {
				t.Errorf("a request that waited %v %s: the clock is taken to be %v ahead", busy, in, off)
			}
		}
		r.write(0, 1, 2)
		synctest.Wait()
		r.write(0, 2, 3) // the client asks for no more until the one before is taken
		time.Sleep(busy) // of the bubble's clock
		waits("in the client")
		waits("to be asked for")

		polled := make(chan []string)
		go func() { polled <- r.poll(s, 2) }()
		for i := 3; i < 5; i++ {
			synctest.Wait()
			r.write(0, i, i+1)
		}
		<-polled
		if off := clock.Offset(); off > quick || !clock.Fresh() {
			t.Errorf("requests that were waited for: the clock is taken to be %v ahead, told: %v", off, clock.Fresh())
		}
	})
}
