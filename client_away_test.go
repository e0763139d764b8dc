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

// impatient is a client of brokers that gives up a record after a second.
func impatient(t *testing.T, cfg kafka.Config) *Client {
	t.Helper()
	c := &Client{cfg: cfg, source: "test"}
	c.ending, c.end = context.WithCancel(context.Background())
	var err error
	if c.admin, err = kafka.OpenAdmin(cfg); err != nil {
		t.Fatal(err)
	}
	if c.producer, err = kafka.OpenProducer(cfg, kafka.WithDeliveryTimeout(time.Second)); err != nil {
		t.Fatal(err)
	}
	c.watch = newWatch(cfg.Namespace, 1, nil, newBook(1))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// nobody is an address where nobody listens any more.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A program can tell that no broker answers from that they don't take what it writes.
func TestSubmitSaysThatNoBrokerAnswers(t *testing.T) {
	order := Order{ID: "o", Workflow: "w"}
	c := impatient(t, kafka.Config{Brokers: []string{nobody(t)}, Namespace: testSpace})
	if err := c.Submit(t.Context(), order); !errors.Is(err, ErrUnreachable) || !errors.Is(err, kafka.ErrNotAcknowledged) {
		t.Errorf("nobody is there: %v", err)
	}
	ended, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Submit(ended, order); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnreachable) {
		t.Errorf("out of time: %v", err)
	}

	b := kafkatest.Embedded(t)
	c = impatient(t, kafka.Config{Brokers: b.Addrs, Dial: b.Dial, Namespace: testSpace})
	if err := c.Submit(t.Context(), order); !errors.Is(err, kafka.ErrNoTopic) || errors.Is(err, ErrUnreachable) {
		t.Errorf("there is no such topic: %v", err)
	}
	inSync := fmt.Errorf("write: %w: NOT_ENOUGH_REPLICAS", kafka.ErrNotAcknowledged)
	if err := c.why(t.Context(), inSync); !errors.Is(err, inSync) || errors.Is(err, ErrUnreachable) {
		t.Errorf("brokers answer, and don't take it: %v", err)
	}
}

// What waits for an acknowledgement when the client is closed says that it was closed.
func TestSubmitEndsWithTheClient(t *testing.T) {
	c := impatient(t, kafka.Config{Brokers: []string{nobody(t)}, Namespace: testSpace})
	submitted := make(chan error, 1)
	c.watch.mu.Lock() // which the order passes before it is written
	go func() { submitted <- c.Submit(t.Context(), Order{ID: "o", Workflow: "w"}) }()
	c.end()
	c.producer.Close()
	c.watch.mu.Unlock()
	if err := <-submitted; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// A command that is written has its answer waited for, also while brokers are away.
func TestAnswerIsWaitedForWhileBrokersAreAway(t *testing.T) {
	for _, c := range []struct{ away, limit time.Duration }{{30 * time.Second, time.Minute}, {time.Hour, 3 * time.Minute}} {
		bubble(t, func(t *testing.T) {
			b := newBook(1)
			b.parts[testSpace.Answers()] = make([][]events.Record, 1)
			begun, refused := time.Now(), errors.New("NOT_LEADER_FOR_PARTITION")
			b.fault = func(string) error {
				if time.Since(begun) < c.away {
					return refused
				}
				return nil
			}
			answer := events.Answer{Task: "o", Control: "r-1", Accepted: true, Seq: 3, State: Cancelled}
			b.append(testSpace.Answers(), 0, answer.Record(testSpace, "s"))
			client := &Client{cfg: kafka.Config{Namespace: testSpace}}
			client.ending, client.end = context.WithCancel(t.Context())
			got, err := client.answer(hours(t), b, 0, 0, "r-1")
			if took := time.Since(begun); took > c.limit {
				t.Errorf("took %v", took)
			}
			if c.away < patience {
				if err != nil || !got.Accepted {
					t.Errorf("got %+v, %v", got, err)
				}
			} else if !errors.Is(err, refused) || !strings.Contains(err.Error(), "written") {
				t.Errorf("got %v", err)
			}
			client.end()
		})
	}
}
