package waybill

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/logclient"
)

// newQuickClient returns a client that gives up a record after 1 s.
func newQuickClient(t *testing.T, cfg kafka.Config) *Client {
	t.Helper()
	c := &Client{cfg: cfg, source: "test"}
	c.closing, c.cancelCalls = context.WithCancel(context.Background())
	var err error
	if c.admin, err = kafkaadmin.Open(cfg); err != nil {
		t.Fatal(err)
	}
	if c.producer, err = kafka.OpenProducerWithin(cfg, time.Second); err != nil {
		t.Fatal(err)
	}
	c.waiter = logclient.NewWaiter(cfg.Namespace, 1, nil, nil, logclient.Options{}) // no test waits
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
	c := newQuickClient(t, kafka.Config{Brokers: []string{closedAddress(t)}, Namespace: "t."})
	if err := c.Submit(t.Context(), order); !errors.Is(err, ErrUnreachable) || !errors.Is(err, kafka.ErrNotAcknowledged) {
		t.Errorf("no broker listens: %v", err)
	}
	ended, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Submit(ended, order); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnreachable) {
		t.Errorf("ctx is done: %v", err)
	}

	b := kafkatest.Embedded(t)
	c = newQuickClient(t, kafka.Config{Brokers: b.Addrs, Dial: b.Dial, Namespace: "t."})
	if err := c.Submit(t.Context(), order); !errors.Is(err, kafka.ErrNoTopic) || errors.Is(err, ErrUnreachable) {
		t.Errorf("there is no such topic: %v", err)
	}
	inSync := fmt.Errorf("write: %w: NOT_ENOUGH_REPLICAS", kafka.ErrNotAcknowledged)
	if err := c.withCause(t.Context(), inSync); !errors.Is(err, inSync) || errors.Is(err, ErrUnreachable) {
		t.Errorf("brokers answer and refuse it: %v", err)
	}
}

// slowInput is an input that takes long to encode.
type slowInput struct{ begun, end chan struct{} }

func (i *slowInput) MarshalJSON() ([]byte, error) {
	close(i.begun)
	<-i.end
	return []byte("1"), nil
}

// A Submit that waits for acknowledgements returns ErrClosed when the client is closed.
func TestSubmitEndsWithTheClient(t *testing.T) {
	c := newQuickClient(t, kafka.Config{Brokers: []string{closedAddress(t)}, Namespace: "t."})
	submitted := make(chan error, 1)
	input := &slowInput{begun: make(chan struct{}), end: make(chan struct{})}
	go func() { submitted <- c.Submit(t.Context(), Order{ID: "o", Workflow: "w", Input: input}) }()
	<-input.begun
	c.cancelCalls()
	c.producer.Close()
	close(input.end)
	if err := <-submitted; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}
