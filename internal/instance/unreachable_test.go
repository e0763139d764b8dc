package instance_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/suite"
)

// heard signals that a log has a given line.
type heard struct {
	told
	part string
	once sync.Once
	came chan struct{}
}

func (h *heard) Handle(ctx context.Context, r slog.Record) error {
	err := h.told.Handle(ctx, r)
	if h.count(h.part) > 0 {
		h.once.Do(func() { close(h.came) })
	}
	return err
}

// A supervisor and an index log that brokers don't respond. Otherwise their logs look like those of idle processes.
func TestFollowersSayThatTheBrokersAreAway(t *testing.T) {
	start := map[string]func(context.Context, *instance.Instance) error{
		"supervisor": func(ctx context.Context, n *instance.Instance) error { return n.StartSupervisor(ctx, time.Second) },
		"index": func(ctx context.Context, n *instance.Instance) error {
			_, err := n.StartIndex(ctx, nil)
			return err
		},
	}
	for role, begin := range start {
		t.Run(role, func(t *testing.T) {
			part := "of=" + role
			if role == "index" {
				part = "brokers don't respond"
			}
			l := newEventLog(t) // without events, because a supervisor that reads some also logs that no scheduler claimed their partitions
			h := &heard{told: told{Handler: slog.DiscardHandler}, part: part, came: make(chan struct{})}
			n, err := instance.Open(t.Context(), l.cfg, instance.Config{DataDir: t.TempDir(), Metrics: instance.NewMetrics(), Log: slog.New(h), OwnClock: true, Session: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- n.Run(ctx, func(ctx context.Context) error { return begin(ctx, n) }) }()
			for deadline := time.Now().Add(suite.Patience); ; {
				w := httptest.NewRecorder()
				n.Health().ServeHTTP(w, httptest.NewRequest(http.MethodGet, instance.ReadyPath, nil))
				if w.Code == http.StatusOK {
					break
				} else if time.Now().After(deadline) {
					t.Fatalf("it isn't ready: %s", w.Body)
				}
			}
			l.broker.Fake.Close()
			select {
			case <-h.came:
			case <-time.After(suite.Patience):
				t.Errorf("it says nothing but %s", strings.Join(h.all, "\n"))
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
