package logclient

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// newAnswerLog returns a log with answers, and a WriteFunc that has a scheduler answer at once.
func newAnswerLog(a *events.Answer) (*fakeLog, WriteFunc) {
	b := newFakeLog(1)
	b.partitions[testNamespace.Answers()] = make([][]events.Record, 1)
	return b, func(_ context.Context, r events.Record) (events.Record, error) {
		r.Partition, r.Time = 0, time.Now()
		if a != nil {
			b.append(testNamespace.Answers(), 0, a.Record(testNamespace, "s"))
		}
		return r, nil
	}
}

func send(ctx context.Context, log Log, write WriteFunc) (*events.Answer, bool, error) {
	x := &events.Control{Task: "o", Command: events.Cancel, By: events.By{Claimed: "me", RequestID: "r-1"}}
	r, err := CommandRecord(testNamespace, "test", x)
	if err != nil {
		return nil, false, err
	}
	return SendCommand(ctx, log, testNamespace, write, x, r)
}

// After a command was written, SendCommand waits for its answer while brokers are unavailable.
func TestCommandWaitsWhileBrokersAreUnavailable(t *testing.T) {
	for _, c := range []struct{ away, limit time.Duration }{{30 * time.Second, time.Minute}, {time.Hour, 3 * time.Minute}} {
		withVirtualClock(t, func(t *testing.T) {
			b, write := newAnswerLog(&events.Answer{Task: "o", Control: "r-1", Accepted: true, Seq: 3, State: events.StateCancelled})
			begun, refused := time.Now(), errors.New("NOT_LEADER_FOR_PARTITION")
			got, written, err := send(withinAnHour(t), b, func(ctx context.Context, r events.Record) (events.Record, error) {
				b.fault = func(string) error {
					if time.Since(begun) < c.away {
						return refused
					}
					return nil
				}
				return write(ctx, r)
			})
			if took := time.Since(begun); took > c.limit || !written {
				t.Errorf("took %v, written %v", took, written)
			}
			if c.away < BrokerSilenceMax {
				if err != nil || !got.Accepted {
					t.Errorf("got %+v, %v", got, err)
				}
			} else if !errors.Is(err, refused) || !strings.Contains(err.Error(), "written") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// SendCommand returns the answer to its own command, also if its partition had no leader when it was written.
func TestCommandGetsItsAnswer(t *testing.T) {
	for _, leaderless := range []bool{false, true} {
		withVirtualClock(t, func(t *testing.T) {
			b, write := newAnswerLog(nil)
			answer := func(task, control string, accepted bool) {
				a := events.Answer{Task: task, Control: control, Accepted: accepted}
				b.append(testNamespace.Answers(), 0, a.Record(testNamespace, "s"))
			}
			answer("o", "r-1", true) // to an earlier command with this request id
			time.Sleep(time.Hour)
			if leaderless {
				b.partitions[testNamespace.Answers()] = append(b.partitions[testNamespace.Answers()], nil) // another one has a leader
				b.leaderless = map[int32]bool{0: true}
			}
			go func() {
				time.Sleep(time.Second)
				b.mu.Lock()
				b.leaderless = nil
				b.mu.Unlock()
				answer("another", "r-1", true)
				answer("o", "r-2", true)
				answer("o", "r-1", false)
			}()
			if got, written, err := send(withinAnHour(t), b, write); err != nil || !written || got.Accepted || got.Task != "o" {
				t.Errorf("leaderless %v: got %+v, %v, %v", leaderless, got, written, err)
			}
		})
	}
}

// SendCommand finds its answer in any partition: with partitions that were added to an inbox, the command is written to another one.
func TestCommandGetsItsAnswerFromAnyPartition(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		b.partitions[testNamespace.Answers()] = make([][]events.Record, 3)
		got, _, err := send(withinAnHour(t), b, func(_ context.Context, r events.Record) (events.Record, error) {
			a := &events.Answer{Task: "o", Control: "r-1", Accepted: true}
			b.append(testNamespace.Answers(), 2, a.Record(testNamespace, "s"))
			r.Partition, r.Time = 7, time.Now()
			return r, nil
		})
		if err != nil || !got.Accepted {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// An error says whether the command was written.
func TestCommandSaysWhetherItWasWritten(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b, write := newAnswerLog(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, written, err := send(ctx, b, write); !written || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("not answered: written %v, %v", written, err)
		}
		full := errors.New("NOT_ENOUGH_REPLICAS")
		if _, written, err := send(t.Context(), b, func(context.Context, events.Record) (events.Record, error) { return events.Record{}, full }); written || !errors.Is(err, full) {
			t.Errorf("not acknowledged: written %v, %v", written, err)
		}
		b.fault = func(string) error { return full }
		if _, written, err := send(t.Context(), b, write); written || !errors.Is(err, full) {
			t.Errorf("the answers can't be read: written %v, %v", written, err)
		}
	})
}
