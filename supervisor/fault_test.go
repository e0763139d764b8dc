package supervisor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/watchdog"
	"github.com/waybill-run/waybill/supervisor"
)

func TestFailedSendPausesItsPartitionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		due := r.start.Add(5 * time.Second)
		var tries []time.Duration
		r.out.deliver = func(_ context.Context, p int32, _ int) error {
			if p == 0 && time.Since(due) >= 0 && time.Since(due) < 20*time.Second {
				tries = append(tries, time.Since(due))
				return errDown
			}
			return nil
		}
		told := 0
		r.listen.SendFailed = func(p int32, err error) {
			if p != 0 || !errors.Is(err, errDown) {
				t.Errorf("partition %d: %v", p, err)
			}
			told++
		}
		r.run()
		r.assign(0, 1)
		r.log.append(0, r.started("down", 3, due))
		r.log.append(1, r.started("up", 3, due))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		expect(t, "tries", tries, "0s 100ms 300ms 700ms 1.5s 3.1s 6.3s 11.3s 16.3s")
		expect(t, "down", r.out.since(due, "down"), "21.3s 22.3s 24.3s")
		expect(t, "up", r.out.since(due, "up"), "0s 1s 3s 7s 15s")
		if told != len(tries) {
			t.Errorf("told of %d failed sends, there were %d", told, len(tries))
		}
		// A successful send resets the pause.
		due, tries = due.Add(time.Minute), nil
		r.log.append(0, completed("down", 4), r.started("again", 3, due))
		time.Sleep(time.Until(due) + time.Second)
		synctest.Wait()
		expect(t, "tries", tries, "0s 100ms 300ms 700ms")
		r.end()
	})
}

// TestHangingSend lets a send hang until the client gives up. Its partition is still read, and recoveries are requested
// in other partitions. The supervisor ends without waiting for the send.
func TestHangingSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.out.deliver = func(ctx context.Context, p int32, _ int) error {
			if p == 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		r.run()
		r.assign(0, 1)
		r.log.append(0, r.started("hangs", 3, r.start.Add(time.Second)))
		r.log.append(1, r.started("goes", 3, r.start.Add(2*time.Second)))
		time.Sleep(3 * time.Second)
		r.log.append(0, completed("other", 4))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		expect(t, "goes", r.out.since(r.start, "goes"), "2s 3s 5s")
		if next := r.disk.saved[0]; next != 2 {
			t.Errorf("partition 0 was saved up to %d, want 2", next)
		}
		r.end()
		if e := time.Since(r.start); e != 6*time.Second {
			t.Errorf("the stop waited until %v", e)
		}
	})
}

func TestErrorsThatEndTheLoop(t *testing.T) {
	for name, c := range map[string]struct {
		break_ func(r *rig)
		says   []string
		saved  bool // partition 0, which has no fault, was saved
	}{
		"the log":      {func(r *rig) { r.log.fail(errDown) }, []string{"poll waybill.events", "broker down"}, true},
		"a projection": {func(r *rig) { r.disk.applyErr = errDown }, []string{"apply waybill.events/1/1", "broker down"}, true},
		"opening a third": {func(r *rig) {
			r.disk.openErr = errDown
			go func() { // the log returns an error of start next
				_, _, err := r.s.Start(r.t.Context(), testNamespace.Events(), 2)
				r.log.fail(err)
			}()
		}, []string{"open deadlines of partition 2", "broker down"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 3)
				r.run()
				r.assign(0, 1)
				r.log.append(0, r.started("well", 3, r.start.Add(time.Hour)))
				r.log.append(1, r.started("ill", 3, r.start.Add(time.Hour)))
				synctest.Wait()
				r.disk.mu.Lock()
				c.break_(r)
				r.disk.mu.Unlock()
				r.log.append(1, completed("ill", 4))
				err := <-r.ended
				for _, says := range c.says {
					if err == nil || !strings.Contains(err.Error(), says) {
						t.Errorf("the error says %v, not %q", err, says)
					}
				}
				if saved := r.disk.saved[0] == 1; saved != c.saved {
					t.Errorf("partition 0 saved: %v", saved)
				}
				if r.disk.saved[1] == 2 && name != "opening a third" || name == "a projection" && r.disk.saved[1] != 0 {
					t.Errorf("partition 1 was saved up to %d", r.disk.saved[1])
				}
				r.closed()
				if _, _, err := r.s.Start(t.Context(), testNamespace.Events(), 0); err == nil || !strings.Contains(err.Error(), "Run has returned") {
					t.Errorf("start after the end: %v", err)
				}
				r.stop()
			})
		})
	}
}

// TestHangingDiskEndsTheSupervisor lets the loop hang on a disk while the client continues to send heartbeats. The
// supervisor ends without waiting, so that its partitions are reassigned. The same holds while it is being stopped.
func TestHangingDiskEndsTheSupervisor(t *testing.T) {
	for name, told := range map[string]bool{"at work": false, "told to end": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				r.run()
				r.assign(0)
				r.log.append(0, r.started("order-1", 3, r.start.Add(time.Hour)))
				synctest.Wait()
				r.disk.hangs = make(chan struct{})
				begun := time.Now()
				if told {
					r.stop()
				} else {
					r.log.append(0, completed("order-1", 4))
				}
				var stalled *watchdog.StalledError
				if err := <-r.ended; !errors.As(err, &stalled) || !strings.Contains(err.Error(), "disk") {
					t.Errorf("it ended with %v", err)
				}
				if took := time.Since(begun); took < 30*time.Second || took > 35*time.Second {
					t.Errorf("after %v", took)
				}
				close(r.disk.hangs)
				r.stop()
			})
		})
	}
}

func TestStartInAnotherTopic(t *testing.T) {
	r := newRig(t, 1)
	s, err := supervisor.New(supervisor.Config{Namespace: "other.", Source: "test", Open: r.disk.Deadlines, Outbox: r.out, Clock: r.clock})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Start(t.Context(), testNamespace.Events(), 0); err == nil || !strings.Contains(err.Error(), "other.events") {
		t.Errorf("start in another system's topic: %v", err)
	}
}

func TestValidateListsAllFaults(t *testing.T) {
	err := (&supervisor.Config{SweepInterval: time.Nanosecond}).Validate()
	for _, says := range []string{"namespace", "source", "outbox and a clock", "sweep interval 1ns"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: doesn't speak of %s", err, says)
		}
	}
}

// TestUnreadableRecordsAreHarmless checks that an unreadable event stops only its own task. A policy of a newer build
// is reported at a limited rate.
func TestUnreadableRecordsAreHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		var told []time.Duration
		r.listen.Unreadable = func(p int32, err error) {
			if !strings.Contains(err.Error(), `task "strange": timer 3`) {
				t.Errorf("partition %d: %v", p, err)
			}
			told = append(told, time.Since(r.start))
		}
		r.run()
		r.assign(0)
		due := r.start.Add(5 * time.Second)
		strange := r.started("strange", 3, due)
		strange.Policy.OnError, strange.Policy.FailureCount = "escalate", 9
		r.log.append(0, r.started("torn", 3, due), r.started("well", 3, due), strange)
		r.log.appendRecord(0, &events.Record{Topic: testNamespace.Events(), Key: []byte("torn"), Value: []byte("{"),
			Headers: events.CloudHeaders("waybill.step.completed.v1", "test", "torn/4")})
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, "of an unknown end", r.out.since(due, "torn"), "")
		expect(t, "beside it", r.out.since(due, "well"), "0s 1s 3s 7s 15s 31s")
		expect(t, "calls for nothing known", r.out.since(due, "strange"), "")
		expect(t, "told", told, "5s 35s")
		r.end()
	})
}
