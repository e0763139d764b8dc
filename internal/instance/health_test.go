package instance

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/watchdog"
)

// probe sends a probe as a platform does.
func probe(h http.Handler, path string) (status int, text string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func wantProbe(t *testing.T, h http.Handler, path string, status int, text string) {
	t.Helper()
	if got, said := probe(h, path); got != status || !strings.Contains(said, text) {
		t.Errorf("%s: %d %q, want %d %q", path, got, said, status, text)
	}
}

// A process is ready when all members have joined and their partitions are restored. It is live while its loops make
// progress, whatever it waits for.
func TestHealth(t *testing.T) {
	const no, yes = http.StatusServiceUnavailable, http.StatusOK
	h := newHealth()
	h.addMember("scheduler", "worker", nil)
	behind := map[int32]bool{1: true}
	h.addMember("index", "index", func(p int32) bool { return !behind[p] })
	wantProbe(t, h, StartedPath, no, "still starting")
	wantProbe(t, h, ReadyPath, no, "still starting")
	wantProbe(t, h, LivePath, yes, "ok")
	h.markStarted()
	wantProbe(t, h, StartedPath, yes, "ok")
	wantProbe(t, h, ReadyPath, no, "worker: has not joined its group")
	h.updateAssignment("index", []int32{0, 1}, nil)
	h.updateAssignment("worker", []int32{0, 1, 2}, nil)
	wantProbe(t, h, ReadyPath, no, "worker: is restoring partitions [0 1 2]")
	h.markRestored("supervisor", 0) // of another role
	h.markRestored("scheduler", 0)
	h.updateAssignment("worker", nil, []int32{2})
	wantProbe(t, h, ReadyPath, no, "[1]")
	h.markRestored("scheduler", 1)
	wantProbe(t, h, ReadyPath, no, "index: is restoring partitions [1]")
	behind[1] = false
	wantProbe(t, h, ReadyPath, yes, "ok")
	behind[1] = true // under load it may lag for a moment
	wantProbe(t, h, ReadyPath, yes, "ok")
	h.markLeft("worker")
	wantProbe(t, h, ReadyPath, no, "worker: has not joined")
	wantProbe(t, h, LivePath, yes, "ok")
	wantProbe(t, h, "/", http.StatusNotFound, "")
}

// waits is a log whose Poll blocks, as if the brokers didn't respond, until release is closed.
type waits struct {
	*schedulerworker.Worker
	release chan struct{}
}

func (w waits) Poll(context.Context) ([]events.Record, error) {
	<-w.release
	return nil, nil
}

func (w waits) Close() {}

// A hanging loop fails the liveness probe before its process ends itself. A loop that waits for brokers doesn't.
func TestLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth()
		log := waits{release: make(chan struct{})}
		watched := h.watchWorker("worker", log)
		go func() { _, _ = watched.Poll(t.Context()) }()
		time.Sleep(time.Hour)
		wantProbe(t, h, LivePath, http.StatusOK, "ok")
		close(log.release)
		synctest.Wait()
		wantProbe(t, h, LivePath, http.StatusOK, "ok")
		time.Sleep(25 * time.Second)
		wantProbe(t, h, LivePath, http.StatusServiceUnavailable, "worker: its loop has made no progress for 25s")
		watched.Close()
		wantProbe(t, h, LivePath, http.StatusOK, "ok")

		var supervisor watchdog.Loop
		h.watchLoop("supervisor", &supervisor)
		supervisor.Begin()
		time.Sleep(25 * time.Second)
		wantProbe(t, h, LivePath, http.StatusServiceUnavailable, "supervisor")
		supervisor.End()
		time.Sleep(time.Hour)
		wantProbe(t, h, LivePath, http.StatusOK, "ok")
	})
}

// Every role reports that it has started, and that it is ready after it has joined and restored. A member without
// partitions is ready too.
func TestRolesAreReady(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t), ClientID: "test"}
		admin, err := kafkaadmin.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		if _, err := admin.CreateTopics(t.Context(), kafkaadmin.CreateTopicsOptions{Partitions: 2, Agents: map[string]int32{"shop": 1}}); err != nil {
			t.Fatal(err)
		}
		roles := map[string]func(context.Context, *Instance) error{
			"scheduler": func(ctx context.Context, n *Instance) error {
				return n.StartScheduler(ctx, SchedulerOptions{Workers: 2})
			},
			"supervisor": func(ctx context.Context, n *Instance) error { return n.StartSupervisor(ctx, 0) },
			"index":      func(ctx context.Context, n *Instance) error { _, err := n.StartIndex(ctx, nil); return err },
			"agent": func(ctx context.Context, n *Instance) error {
				n.StartAgent(ctx, "shop", 1, agent.Breaker{}, agent.HandlerFunc(func(context.Context, agent.Request) (any, error) { return nil, nil }))
				return nil
			},
		}
		for name, start := range roles {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for range 3 { // the third agent has no partition, nor the third scheduler
					becomesReady(t, b, cfg, start)
				}
			})
		}
	})
}

// becomesReady starts a process of one role and waits until it is ready. The process ends with the test.
func becomesReady(t *testing.T, b *kafkatest.Broker, cfg kafka.Config, start func(context.Context, *Instance) error) {
	t.Helper()
	n, err := Open(t.Context(), cfg, Config{DataDir: t.TempDir(), Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler), OwnClock: b.Kind == kafkatest.EmbeddedKind})
	if err != nil {
		t.Fatal(err)
	}
	wantProbe(t, n.Health(), StartedPath, http.StatusServiceUnavailable, "")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx, func(ctx context.Context) error { return start(ctx, n) }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		n.Close()
	})
	again := time.NewTicker(10 * time.Millisecond) // a platform repeats its probes too
	defer again.Stop()
	for {
		status, text := probe(n.Health(), ReadyPath)
		if status == http.StatusOK {
			break
		}
		select {
		case <-again.C:
		case err := <-ended:
			ended <- err
			t.Fatalf("it ended with %v; it was not ready: %s", err, text)
		}
	}
	wantProbe(t, n.Health(), StartedPath, http.StatusOK, "ok")
	wantProbe(t, n.Health(), LivePath, http.StatusOK, "ok")
}

// A stopping process isn't ready, but live, until it has ended.
func TestNotReadyOnceItStops(t *testing.T) {
	for name, fails := range map[string]bool{"told to stop": false, "a role failed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &Instance{metrics: NewMetrics()}
				ctx, cancel := context.WithCancel(t.Context())
				fail, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
				go func() {
					ended <- n.Run(ctx, func(context.Context) error {
						n.Go(func() error { <-release; return nil }) // a handler of an agent
						n.Go(func() error { <-fail; return errors.New("failed") })
						return nil
					})
				}()
				synctest.Wait()
				wantProbe(t, n.Health(), ReadyPath, http.StatusOK, "ok")
				if fails {
					close(fail)
				} else {
					cancel()
				}
				synctest.Wait()
				wantProbe(t, n.Health(), ReadyPath, http.StatusServiceUnavailable, "is stopping")
				wantProbe(t, n.Health(), LivePath, http.StatusOK, "ok")
				close(release)
				if !fails {
					close(fail)
				}
				if err := <-ended; err == nil && fails {
					t.Errorf("it ended with %v", err)
				}
				cancel()
			})
		})
	}
}

// A console serves requests until load balancers have noticed that it stops, for a bounded time. If no platform probes
// it, it stops at once.
func TestDrained(t *testing.T) {
	for _, c := range []struct {
		name         string
		asked        time.Duration // before the stop; 0: no probe
		every, lasts time.Duration
	}{
		{"nobody asks", 0, 0, 0},
		{"asked long ago", time.Hour, 0, 0},
		{"asked every 2 s", time.Second, 2 * time.Second, 6 * time.Second},
		{"asked no more", time.Second, 0, drainMax},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &Instance{metrics: NewMetrics()}
				n.metrics.health.markStarted()
				if c.asked > 0 {
					wantProbe(t, n.Health(), ReadyPath, http.StatusOK, "ok")
				}
				time.Sleep(c.asked)
				ctx, stop := context.WithCancel(t.Context())
				drained, cancel := n.DrainContext(ctx)
				defer cancel()
				begun := time.Now()
				stop()
				synctest.Wait()
				for c.every > 0 && drained.Err() == nil {
					time.Sleep(c.every)
					wantProbe(t, n.Health(), ReadyPath, http.StatusServiceUnavailable, "is stopping")
					synctest.Wait()
				}
				<-drained.Done()
				if took := time.Since(begun); took != c.lasts {
					t.Errorf("it took %s, want %s", took, c.lasts)
				}
			})
		})
	}
}
