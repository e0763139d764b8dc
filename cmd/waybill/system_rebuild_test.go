package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/projections"
)

// TestStateOfRolesLost kills all roles under load, deletes every state directory, and starts them again. Every task
// ends, and each partition's digest equals that of a rebuild from offset 0. It runs on Apache Kafka, with separate
// processes.
func TestStateOfRolesLost(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 500
	b := kafkatest.Kafka(t)
	s := onBroker(t, b, quickWorkflow(t, "quick", "undo", httpAttempts))
	shop := openShop(t, func(w http.ResponseWriter, r *http.Request) bool {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return true // the caller has disconnected
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		return refundsAreDown(w, r, body)
	})
	orders := unattended(demo.Orders(tasks, 9, true))
	file := ordersFile(t, orders, "quick")
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	roles := func() []*process {
		short := []string{"--session-timeout", shortSession}
		started := s.agents(t, shop)
		started = append(started,
			// A scheduler with an instance name keeps its partitions; one without a name gets others.
			s.start(t, append([]string{"scheduler", "--data-dir", dirs[0], "--instance", "one"}, short...)...),
			s.start(t, append([]string{"scheduler", "--data-dir", dirs[1]}, short...)...))
		return append(started, s.start(t, append([]string{"supervisor", "--data-dir", dirs[2]}, short...)...))
	}
	seen := observe(t, s)
	running := roles()
	submit := startProcess(t, s.env(), "submit", "-f", file)
	ended := seen.awaitEnded(t, tasks/4)
	for _, p := range append(running, submit) {
		_ = p.cmd.Process.Kill()
	}
	for _, p := range append(running, submit) {
		p.kill()
	}
	if ended >= tasks {
		t.Fatalf("all %d tasks had ended before the kill: it proves nothing", ended)
	}
	t.Logf("all killed with %d of %d tasks ended", ended, tasks)
	for _, dir := range dirs {
		deleteState(t, dir)
	}
	running = roles()
	s.waybill(t, exitError, "submit", "-f", file, "--wait") // some are held
	checkOrders(t, s, seen.inputs, shop.ledger, orders)
	for _, p := range running {
		p.stop(t)
	}
	checkDigests(t, s.config(), s.partitions, dirs...)
}

// TestStateOfUpLost does the same for `up`: its projections are deleted, the broker's log isn't.
func TestStateOfUpLost(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 500
	u := startUpProcess(t, "--demo", "--workflow", quickWorkflow(t, "quick", "undo", callAttempts))
	orders := unattended(demo.Orders(tasks, 10, true))
	file := ordersFile(t, orders, "quick")
	seen := observe(t, &u.system)
	submit := startProcess(t, u.env(), "submit", "-f", file)
	ended := seen.awaitEnded(t, tasks/4)
	u.kill()
	submit.kill()
	t.Logf("killed with %d of %d tasks ended", ended, tasks)
	state := filepath.Join(u.dir, "state")
	deleteState(t, state)
	u.start(t)
	u.waybill(t, exitError, "submit", "-f", file, "--wait")
	checkOrders(t, &u.system, seen.inputs, u.ledger(), orders)
	u.stop(t)
	broker, err := embedded.Start(embedded.Options{DataDir: filepath.Join(u.dir, "kafka")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := broker.Close(); err != nil {
			t.Error(err)
		}
	}()
	cfg := broker.Config()
	cfg.Namespace = u.ns
	checkDigests(t, cfg, u.partitions, state)
}

// deleteState deletes the content of a state directory, which must not be empty.
func deleteState(t *testing.T, dir string) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		t.Fatalf("state directory %s holds %v (%v): nothing to lose", dir, entries, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// digested is a view that can be rebuilt and compared.
type digested interface {
	Next() int64
	Apply(r *events.Record) error
	Digest() string
	Discard()
}

// viewOf opens a partition's view of a store.
func viewOf(s *projections.Store, view string, p int32) (digested, error) {
	switch view {
	case projections.ViewTasks:
		return s.Tasks(p)
	case projections.ViewDeadlines:
		return s.Deadlines(p)
	}
	return s.Timelines(p)
}

// checkDigests compares every partition of every view in the state directories with a rebuild in an empty directory,
// from offset 0 to the same offset. For each partition, one task store must reflect the whole log.
func checkDigests(t *testing.T, cfg kafka.Config, partitions int32, dirs ...string) {
	t.Helper()
	history := readEvents(t, cfg, partitions)
	whole, compared := map[int32]bool{}, 0
	for _, dir := range dirs {
		for _, view := range []string{projections.ViewTasks, projections.ViewDeadlines, projections.ViewTimelines} {
			if _, err := os.Stat(filepath.Join(dir, view)); errors.Is(err, os.ErrNotExist) {
				continue
			}
			live := openStore(t, cfg, partitions, view, filepath.Join(dir, view))
			rebuilt := openStore(t, cfg, partitions, view, t.TempDir())
			held, err := live.Partitions()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range held {
				next := compareDigests(t, view, p, live, rebuilt, history[p])
				compared++
				end := int64(0)
				if n := len(history[p]); n > 0 {
					end = history[p][n-1].Offset + 1
				}
				if view == projections.ViewTasks && next >= end {
					whole[p] = true
				}
			}
		}
	}
	if len(whole) != int(partitions) {
		t.Errorf("the stores reflect the whole log of %d of %d partitions", len(whole), partitions)
	}
	t.Logf("%d digests equal those of a rebuild", compared)
}

// compareDigests compares one partition of a view, and returns the offset below which the live view reflects the log.
func compareDigests(t *testing.T, view string, p int32, live, rebuilt *projections.Store, history []events.Record) int64 {
	t.Helper()
	a, err := viewOf(live, view, p)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Discard()
	b, err := viewOf(rebuilt, view, p)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Discard()
	for i := range history {
		if history[i].Offset < a.Next() {
			if err := b.Apply(&history[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := a.Digest(), b.Digest(); got != want {
		t.Errorf("%s of partition %d at offset %d: digest %s, of a rebuild %s", view, p, a.Next(), got, want)
	}
	return a.Next()
}

func openStore(t *testing.T, cfg kafka.Config, partitions int32, view, dir string) *projections.Store {
	t.Helper()
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	cluster, err := admin.ClusterID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := projections.Open(dir, projections.Identity{ClusterID: cluster, Namespace: cfg.Namespace, Partitions: partitions, View: view}, projections.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// readEvents reads all events, by partition.
func readEvents(t *testing.T, cfg kafka.Config, partitions int32) [][]events.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	r, err := logreader.OpenRestorer(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	history := make([][]events.Record, partitions)
	_, err = r.ReadAll(ctx, cfg.Namespace.Events(), logreader.Range{}, func(rs []events.Record) error {
		for _, x := range rs {
			history[x.Partition] = append(history[x.Partition], x)
		}
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range history {
		if !slices.IsSortedFunc(h, func(a, b events.Record) int { return int(a.Offset - b.Offset) }) {
			t.Fatal("the log came out of order")
		}
	}
	return history
}
