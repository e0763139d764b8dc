package waybill

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// newQuickClient returns a client that gives up a record after 1 s.
func newQuickClient(t *testing.T, cfg kafka.Config) *Client {
	t.Helper()
	c := &Client{cfg: cfg, source: "test"}
	c.closing, c.cancelCalls = context.WithCancel(context.Background())
	var err error
	if c.admin, err = kafka.OpenAdmin(cfg); err != nil {
		t.Fatal(err)
	}
	if c.producer, err = kafka.OpenProducer(cfg, kafka.WithDeliveryTimeout(time.Second)); err != nil {
		t.Fatal(err)
	}
	c.waiter = newWaiter(cfg.Namespace, 1, nil, newFakeLog(1))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// closedAddress returns an address without a listener.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Errors distinguish unreachable brokers from brokers that refuse a record.
func TestSubmitReportsUnreachableBrokers(t *testing.T) {
	order := Order{ID: "o", Workflow: "w"}
	c := newQuickClient(t, kafka.Config{Brokers: []string{closedAddress(t)}, Namespace: testNamespace})
	if err := c.Submit(t.Context(), order); !errors.Is(err, ErrUnreachable) || !errors.Is(err, kafka.ErrNotAcknowledged) {
		t.Errorf("no broker listens: %v", err)
	}
	ended, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Submit(ended, order); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnreachable) {
		t.Errorf("ctx is done: %v", err)
	}

	b := kafkatest.Embedded(t)
	c = newQuickClient(t, kafka.Config{Brokers: b.Addrs, Dial: b.Dial, Namespace: testNamespace})
	if err := c.Submit(t.Context(), order); !errors.Is(err, kafka.ErrNoTopic) || errors.Is(err, ErrUnreachable) {
		t.Errorf("there is no such topic: %v", err)
	}
	inSync := fmt.Errorf("write: %w: NOT_ENOUGH_REPLICAS", kafka.ErrNotAcknowledged)
	if err := c.withCause(t.Context(), inSync); !errors.Is(err, inSync) || errors.Is(err, ErrUnreachable) {
		t.Errorf("brokers answer and refuse it: %v", err)
	}
}

// A Submit that waits for acknowledgements returns ErrClosed when the client is closed.
func TestSubmitEndsWithTheClient(t *testing.T) {
	c := newQuickClient(t, kafka.Config{Brokers: []string{closedAddress(t)}, Namespace: testNamespace})
	submitted := make(chan error, 1)
	c.waiter.mu.Lock() // Submit needs this lock before it writes the order
	go func() { submitted <- c.Submit(t.Context(), Order{ID: "o", Workflow: "w"}) }()
	c.cancelCalls()
	c.producer.Close()
	c.waiter.mu.Unlock()
	if err := <-submitted; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// After a command was written, Cancel waits for its answer while brokers are unavailable.
func TestCancelWaitsWhileBrokersAreUnavailable(t *testing.T) {
	for _, c := range []struct{ away, limit time.Duration }{{30 * time.Second, time.Minute}, {time.Hour, 3 * time.Minute}} {
		withVirtualClock(t, func(t *testing.T) {
			b := newFakeLog(1)
			b.partitions[testNamespace.Answers()] = make([][]events.Record, 1)
			begun, refused := time.Now(), errors.New("NOT_LEADER_FOR_PARTITION")
			b.fault = func(string) error {
				if time.Since(begun) < c.away {
					return refused
				}
				return nil
			}
			answer := events.Answer{Task: "o", Control: "r-1", Accepted: true, Seq: 3, State: Cancelled}
			b.append(testNamespace.Answers(), 0, answer.Record(testNamespace, "s"))
			client := &Client{cfg: kafka.Config{Namespace: testNamespace}}
			client.closing, client.cancelCalls = context.WithCancel(t.Context())
			got, err := client.waitForAnswer(withinAnHour(t), b, 0, 0, "r-1")
			if took := time.Since(begun); took > c.limit {
				t.Errorf("took %v", took)
			}
			if c.away < brokerSilenceMax {
				if err != nil || !got.Accepted {
					t.Errorf("got %+v, %v", got, err)
				}
			} else if !errors.Is(err, refused) || !strings.Contains(err.Error(), "written") {
				t.Errorf("got %v", err)
			}
			client.cancelCalls()
		})
	}
}
