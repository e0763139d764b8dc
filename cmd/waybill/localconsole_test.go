package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/index"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/replay"
)

// countingSource counts the events that an index receives.
type countingSource struct {
	logSource
	received *int
}

func (s countingSource) open(ctx context.Context, c *localConsole, ps []int32) (index.Log, <-chan struct{}, error) {
	log, applied, err := s.logSource.open(ctx, c, ps)
	return &countingLog{log, s.received}, applied, err
}

type countingLog struct {
	index.Log
	received *int
}

func (l *countingLog) Poll(ctx context.Context) ([]events.Record, error) {
	rs, err := l.Log.Poll(ctx)
	*l.received += len(rs)
	return rs, err
}

// openLog opens the log of a namespace.
func openLog(t *testing.T, cfg kafka.Config) *logbook {
	t.Helper()
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	l, err := (&tool{connection: connection{brokers: cfg.Brokers, namespace: string(cfg.Namespace)}}).open(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// TestIndexOfACommand: the index is in a temporary directory, which is removed. An index in --data-dir is kept, and the
// next command reads only new events, after the last one. The directory isn't used for another log.
func TestIndexOfACommand(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		temporary, dir := t.TempDir(), t.TempDir()
		t.Setenv("TMPDIR", temporary)
		cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
		createTopics(t, cfg)
		l, all := openLog(t, cfg), history(t, cfg.Namespace)
		ask := func(dataDir string) (tasks, received int) {
			t.Helper()
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			err := askLocalConsole(t.Context(), countingSource{logSource{l}, &received}, indexAll, dataDir, func(c *apiClient) error {
				list, more, partial, err := new(taskListOptions).list(cmd, c, time.Time{})
				tasks = len(list)
				if more || partial != nil {
					t.Errorf("more %v, %v", more, partial)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return tasks, received
		}
		produce(t, cfg, all[:6]...) // the claim, and one task
		if tasks, received := ask(""); tasks != 1 || received != 6 {
			t.Errorf("%d tasks of %d events", tasks, received)
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("left in the temporary directory: %v, %v", left, err)
		}
		if tasks, received := ask(dir); tasks != 1 || received != 6 {
			t.Errorf("into %s: %d tasks of %d events", dir, tasks, received)
		}
		produce(t, cfg, all[6:]...)
		if tasks, received := ask(dir); tasks != 2 || received != 1+len(all)-6 {
			t.Errorf("again: %d tasks of %d events", tasks, received)
		}
		other := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t) + "other."}
		createTopics(t, other)
		err := askLocalConsole(t.Context(), logSource{openLog(t, other)}, indexAll, dir, func(*apiClient) error { return nil })
		if err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("the index of another namespace: %v", err)
		}
	})
}

// TestIndexOfALogThatLostEvents: an index that has more than the log isn't used.
func TestIndexOfALogThatLostEvents(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
	createTopics(t, cfg)
	dir, l := t.TempDir(), openLog(t, cfg)
	nothing := func(*apiClient) error { return nil }
	produce(t, cfg, history(t, cfg.Namespace)...)
	if err := askLocalConsole(t.Context(), logSource{l}, indexAll, dir, nothing); err != nil {
		t.Fatal(err)
	}
	if err := kafkatest.DeleteTopic(b.Addrs, cfg.Namespace.Events()); err != nil {
		t.Fatal(err)
	}
	createTopics(t, cfg)
	if err := askLocalConsole(t.Context(), logSource{openLog(t, cfg)}, indexAll, dir, nothing); err == nil || !strings.Contains(err.Error(), "belongs to another log") || !strings.Contains(err.Error(), dir) {
		t.Errorf("the events were deleted: %v", err)
	}
}

// TestIndexOfAnOpenTransaction: records after an open transaction are missing, and the command says so. A wait for the
// log's end ends.
func TestIndexOfAnOpenTransaction(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
	createTopics(t, cfg)
	all := history(t, cfg.Namespace)
	produce(t, cfg, all[:6]...)
	defer b.OpenTransaction(t, "another.open", all[6:7])()
	l, note := openLog(t, cfg), &strings.Builder{}
	l.note = note
	err := askLocalConsole(t.Context(), logSource{l}, indexTask("good-7"), "", func(c *apiClient) error {
		v, err := c.Task(t.Context(), "good-7")
		if v.State != events.StateProcessed {
			t.Errorf("the task before it is %s", v.State)
		}
		return err
	})
	if err != nil || strings.Count(note.String(), "an open transaction hides later records") != 1 {
		t.Errorf("%v, said %q", err, note)
	}
}

// TestIndexOfAFile: a file answers as the log that it was exported from, also if it is standard input.
func TestIndexOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "all.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := replay.NewWriter(f, replay.Head{Namespace: "shop.", Partitions: 2})
	for i, r := range history(t, "shop.") {
		r.Offset = int64(2 * i) // with markers between them
		if err := w.Write(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.End(), f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, "-"} {
		in, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := openFileSource(name, in, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		err = askLocalConsole(t.Context(), s, indexAll, "", func(c *apiClient) error {
			line, err := c.Timeline(t.Context(), "edited")
			if err != nil {
				return err
			}
			if n := len(line.Lines); n != 5 || line.Lines[4].Offset != "20" || shortType(line.Lines[4].Type) != "task.processed" {
				t.Errorf("%s: the timeline has %+v", name, line.Lines)
			}
			_, err = c.Task(t.Context(), "nobody")
			if codeOf(err) != exitNotFound || !strings.Contains(err.Error(), "in "+name) {
				t.Errorf("%s: %v", name, err)
			}
			return nil
		})
		if err := errors.Join(err, in.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.close()
		if _, err := os.Stat(s.path); (err == nil) != (name == path) {
			t.Errorf("%s: %s is there: %v", name, s.path, err)
		}
	}
}

// TestHandlerTransport: a response arrives as it is written, and a request that is cancelled ends it.
func TestHandlerTransport(t *testing.T) {
	more, ended := make(chan struct{}), make(chan struct{})
	client := &http.Client{Transport: handlerTransport{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/none" {
			return
		}
		defer close(ended)
		w.Header().Set("X-Kind", "stream")
		w.WriteHeader(http.StatusAccepted)
		for _, err := fmt.Fprintln(w, "one"); err == nil; _, err = fmt.Fprintln(w, "more") {
			select {
			case <-more:
			case <-r.Context().Done():
				return
			}
		}
	})}}
	ctx, cancel := context.WithCancel(t.Context())
	ask := func(path string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	if resp := ask("/none"); resp.StatusCode != http.StatusOK {
		t.Errorf("an empty response: %d", resp.StatusCode)
	}
	resp := ask("/stream")
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{"one", "more"} {
		if !lines.Scan() || lines.Text() != want || resp.StatusCode != http.StatusAccepted || resp.Header.Get("X-Kind") != "stream" {
			t.Errorf("%d %q, want %q", resp.StatusCode, lines.Text(), want)
		}
		if want == "one" {
			more <- struct{}{}
		}
	}
	cancel()
	<-ended
}
