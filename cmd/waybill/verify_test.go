package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/local"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/verify"
)

// history returns the events of two orders, as a scheduler writes them.
func history(t *testing.T, ns events.Namespace) []events.Record {
	t.Helper()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rule := events.Attempts{CompleteWithin: time.Minute, MaxAttempts: 1}
	plan := events.NewPlan(events.OnErrorUndo, time.Hour, []events.PlanStep{{ID: "charge", Agent: "bank", Operation: "charge", Attempts: rule}})
	claim := &events.Event{Seq: 1, Epoch: 1, At: at, Cause: events.Cause{Inbox: events.Tasks}, Fact: &events.PartitionClaimed{Owner: "test"}}
	records := []events.Record{claim.Record(ns, "test", 0, claim.Seal(nil))}
	for n, id := range []string{"good-7", "edited"} { // with two partitions, both are in the first
		var task *events.Task
		for _, f := range []events.Fact{
			&events.TaskReceived{Workflow: "pay", Version: 1, Input: []byte(`{"amount":100}`), Plan: plan, Digest: "x"},
			&events.TaskStarted{},
			&events.AttemptStarted{Kind: events.Do, Step: "charge", Attempt: 1, Agent: "bank", Operation: "charge", Key: events.IdempotencyKey(ns, id, "charge", events.Do, 0), TokenHash: "x", Input: []byte(`{"amount":100}`)},
			&events.AttemptCompleted{Kind: events.Do, Step: "charge", Attempt: 1, Output: []byte(`{}`)},
			&events.TaskProcessed{Output: []byte(`{}`)},
		} {
			e := &events.Event{Task: id, Seq: 1, Epoch: 1, At: at, Cause: events.Cause{Inbox: events.Tasks, Offset: int64(n)}, Fact: f}
			if task != nil {
				e.Seq, e.Prev = task.Seq+1, task.Prev
			}
			switch f.(type) {
			case *events.TaskStarted:
				e.Due, e.Policy = at.Add(time.Hour), task.TaskPolicy(at.Add(time.Hour))
			case *events.AttemptStarted:
				e.Due, e.Policy = at.Add(time.Minute), task.Policy(0, events.Do, events.TimerAttempt)
			case *events.AttemptCompleted, *events.TaskProcessed:
				e.Cause = events.Cause{Inbox: events.Replies, Offset: int64(n)}
			}
			r := e.Record(ns, "test", 0, e.Seal(task))
			var err error
			if task, err = events.Evolve(task, e, events.Hash(f.Type(), r.Value)); err != nil {
				t.Fatal(err)
			}
			records = append(records, r)
		}
	}
	return records
}

// verifyOf runs `waybill verify` on a namespace.
func verifyOf(t *testing.T, cfg kafka.Config, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binary(t), "waybill"),
		append([]string{"verify", "--brokers", cfg.Brokers[0], "--namespace", string(cfg.Namespace)}, args...)...)
	var out, note bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &note
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), note.String(), cmd.ProcessState.ExitCode()
}

// TestVerifyFindsWhatWasChanged: a change to a past order breaks the hash chain of its events and is found, on both
// brokers.
func TestVerifyFindsWhatWasChanged(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		for _, tt := range []struct {
			name   string
			change func(rs []events.Record) []events.Record
			broken string // promise and task of the fault
		}{
			{"nothing", func(rs []events.Record) []events.Record { return rs }, ""},
			{"an amount", func(rs []events.Record) []events.Record {
				r := &rs[8] // the attempt of the second order
				r.Value = bytes.Replace(r.Value, []byte(`"amount":100`), []byte(`"amount":900`), 1)
				return rs
			}, "P2 edited"},
			{"an event is gone", func(rs []events.Record) []events.Record { return append(rs[:8], rs[9:]...) }, "P2 edited"},
			{"an event that is none", func(rs []events.Record) []events.Record {
				rs[8].Value = []byte("\x1b[2J")
				return rs
			}, "P15 edited"},
		} {
			cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
			createTopics(t, cfg)
			records := tt.change(history(t, cfg.Namespace))
			for i := range records { // one by one, so that their order is certain
				produce(t, cfg, records[i])
			}
			out, note, code := verifyOf(t, cfg, "-o", "json")
			var got struct {
				Tasks    int
				Faults   []struct{ Promise, Task string }
				Timeline []struct{ Seq int }
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("%s: %v\n%s\n%s", tt.name, err, out, note)
			}
			var broken []string
			for _, f := range got.Faults {
				broken = append(broken, f.Promise+" "+f.Task)
			}
			if strings.Join(broken, ", ") != tt.broken || (code == exitOK) != (tt.broken == "") || code > exitOther || got.Tasks != 2 {
				t.Errorf("%s: exit code %d, %v of %d tasks, want %q; %s", tt.name, code, broken, got.Tasks, tt.broken, note)
			}
			if tt.broken != "" && len(got.Timeline) == 0 {
				t.Errorf("%s: no timeline:\n%s", tt.name, out)
			}
			out, note, code = verifyOf(t, cfg)
			if shown := strings.Contains(out, "task.received"); shown != (tt.broken != "") || strings.Contains(out, "\x1b") || code > exitOther {
				t.Errorf("%s: exit code %d\n%s\n%s", tt.name, code, out, note)
			}
		}
	})
}

// TestVerifyDirectory: any changed byte of the log on the disk of `up` is found by `verify` without a broker. It is
// also found by `up`, which then doesn't start and changes nothing; the embedded broker itself would truncate the log
// there.
func TestVerifyDirectory(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, embedded.Options{DataDir: local.LogDir(dir)})
	cfg := b.Config()
	cfg.Namespace = events.DefaultNamespace
	createTopics(t, cfg)
	records := history(t, cfg.Namespace)
	records = records[:len(records)-2] // without the newest event of an open task, which no hash covers
	for i := range records {
		produce(t, cfg, records[i])
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	run := func(want int, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(binary(t), "waybill"), args...)
		cmd.Env = append(os.Environ(), "WAYBILL_BROKERS=127.0.0.1:1") // a setting for other commands
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != want {
			t.Errorf("%q: %v, want exit code %d\n%s", args, err, want, out)
		}
		return string(out)
	}
	if out := run(exitOK, "verify", "--data-dir", dir); !strings.Contains(out, "Events  9,") {
		t.Errorf("checked:\n%s", out)
	}
	log := filepath.Join(local.LogDir(dir), "partitions", cfg.Namespace.Events()+"-0", "0.dat")
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	changed, n := make([]byte, len(whole)), 0
	for at := 0; at < len(whole); n++ {
		size := 12 + int(whole[at+10])<<8 + int(whole[at+11]) // no batch has 64 KiB
		i := at + 5 + n*83%(size-5)                           // in the first batch a byte of its offset, then bytes of headers and records
		at += size
		copy(changed, whole)
		changed[i] ^= 1
		if err := os.WriteFile(log, changed, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"verify", "--data-dir", dir}, {"up", "--data-dir", dir, "--kafka-listen", "127.0.0.1:0"}} {
			if out := run(exitOther, args...); !strings.Contains(out, "topic waybill.events partition 0: the records from offset") || !strings.Contains(out, log) {
				t.Errorf("byte %d: %s", i, out)
			}
			if left, err := os.ReadFile(log); err != nil || !bytes.Equal(left, changed) {
				t.Fatalf("byte %d: %q changed the log: %d bytes, before %d (%v)", i, args, len(left), len(changed), err)
			}
		}
	}
	if n < len(records) {
		t.Errorf("a log of %d batches", n)
	}
	run(exitUsage, "verify", "--data-dir", dir, "--brokers", "127.0.0.1:1")

	// The command line takes precedence over settings, as for any flag.
	if err := os.WriteFile(log, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WAYBILL_BROKERS", "127.0.0.1:1")
	t.Setenv("WAYBILL_TLS", "true")
	if out := run(exitOK, "verify", "--data-dir", dir); !strings.Contains(out, "Events  9,") {
		t.Errorf("with settings for a cluster:\n%s", out)
	}
	t.Setenv("WAYBILL_DATA_DIR", dir)
	run(exitUnreachable, "verify", "--brokers", "127.0.0.1:1")
	run(exitUnreachable, "verify") // settings name both: the brokers win, since the directory is for other commands
	run(exitUsage, "verify", "--data-dir", filepath.Join(dir, "none"))
	t.Setenv("WAYBILL_BROKERS", "")
	properties := filepath.Join(t.TempDir(), "client.properties")
	if err := os.WriteFile(properties, []byte("bootstrap.servers=127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(exitUnreachable, "verify", "--kafka-config", properties)
}

// TestVerifyNamesWhatKafkasDiskChanged: Kafka returns a batch that was corrupted on its disk without an error. The
// client detects it and doesn't treat it as an unresponsive broker. `verify` reports it with the task, and continues.
func TestVerifyNamesWhatKafkasDiskChanged(t *testing.T) {
	t.Parallel() // it has a cluster of its own
	c := kafkatest.KafkaNodes(t, 1, nil)
	cfg := kafka.Config{Brokers: kafkatest.FromCluster(c).Addrs, Namespace: events.DefaultNamespace}
	createTopics(t, cfg)
	records := history(t, cfg.Namespace)
	for _, r := range records {
		produce(t, cfg, r) // one batch each
	}
	if err := c.Terminate(0); err != nil { // a clean shutdown: else Kafka checks its log on start, too
		t.Fatal(err)
	}
	path := filepath.Join(c.Dir(), "node1", "data", cfg.Namespace.Events()+"-0", "00000000000000000000.log")
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	third, err := events.DecodeEvent(&records[8])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(log, []byte(third.Prev)) // unique in its batch
	if at < 0 {
		t.Fatalf("no third event of the task in %q", log)
	}
	log[at] ^= 1
	if err := os.WriteFile(path, log, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	if err := c.Restart(ctx, 0); err != nil {
		t.Fatal(err)
	}
	cfg.Brokers = kafkatest.FromCluster(c).Addrs
	out, note, code := verifyOf(t, cfg, "-o", "json")
	var got struct {
		Tasks, Events int
		Faults        []struct{ Promise, Task, Topic, Offset, What string }
		Timeline      []struct{ Seq int }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, note)
	}
	if code != exitOther || len(got.Faults) != 1 || got.Tasks != 2 || got.Events != 10 || len(got.Timeline) == 0 {
		t.Fatalf("exit code %d: %+v, %s", code, got, note)
	}
	if f := got.Faults[0]; f.Promise != "P2" || f.Task != "edited" || f.Topic != "events" || f.Offset != "8" || !strings.Contains(f.What, "are corrupt") {
		t.Errorf("%+v", f)
	}
	cmd := exec.Command(filepath.Join(binary(t), "waybill"), "timeline", "edited", "--api", "off", "--brokers", cfg.Brokers[0])
	shown, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(shown), "topic waybill.events partition 0: the records 8 to 8 (of \"edited\") are corrupt") || !regexp.MustCompile(`(?m)^- .* unreadable .* 0/8 *$`).Match(shown) {
		t.Errorf("%v: %s", err, shown)
	}
}

// TestVerifyShowsWhatIsNotChecked checks that a result names the inputs whose dead letters may have been deleted.
func TestVerifyShowsWhatIsNotChecked(t *testing.T) {
	for unchecked, want := range map[int]string{0: "", 2: "Not checked  2 consumed inputs that led to no event: dead letters are missing"} {
		var out strings.Builder
		if err := verifiedTable(&out, &verify.Result{Unchecked: unchecked}); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); strings.Contains(text, "Not checked") != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%d: %s", unchecked, text)
		}
	}
	since := "2026-01-02T03:04:05.000Z"
	var out strings.Builder
	if err := verifiedTable(&out, &verify.Result{Unchecked: 1, DeadlettersSince: &since}); err != nil || !strings.Contains(out.String(), "1 consumed input that led to no event: dead letters from before 2026-01-02") {
		t.Errorf("%v: %s", err, out.String())
	}
}
