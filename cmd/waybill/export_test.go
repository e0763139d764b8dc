package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/replay"
)

// held is an eventSource of records in memory.
type held []events.Record

func (h held) read(_ context.Context, _ string, fn func(*events.Record) error, _ func(*logreader.CorruptError)) error {
	for i := range h {
		if err := fn(&h[i]); err != nil {
			return err
		}
	}
	return nil
}

func (h held) head() replay.Head { return replay.Head{Namespace: "test.", Partitions: 1} }

func (h held) warnings() io.Writer { return io.Discard }
func (h held) close()              {}

// corruptLog returns a log with a complete task, one without its first event, one whose first event has an unreadable
// seq, and a record that is no event.
func corruptLog() held {
	var log held
	add := func(key, name, value string) {
		log = append(log, events.Record{Topic: "test.events", Offset: int64(len(log)), Time: time.UnixMilli(int64(1000 * (len(log) + 1))), Key: []byte(key),
			Value: []byte(value), Headers: events.CloudHeaders("waybill.task.received.v1", "test", name)})
	}
	add("", "0/1", `{"owner":"s1"}`)
	add("whole", "whole/1", `{}`)
	add("headless", "headless/2", `{}`)
	add("whole", "whole/2", `{}`)
	add("nameless", "nameless/one", `{}`)
	add("nameless", "nameless/2", `{}`)
	add("headless", "headless/3", `{}`)
	add("garbage", "", "\x1b[2J no JSON")
	return log
}

// exported returns the offsets that an export of a log writes, and its notes.
func exported(t *testing.T, log held, x *exporting) (offsets []int64, note string) {
	t.Helper()
	var out, said bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetErr(&said)
	if left, err := x.run(cmd, log, &out); err != nil || left.partialError() != nil {
		t.Fatal(err, left)
	}
	r, err := replay.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	err = r.Each(func(r *events.Record) error {
		offsets = append(offsets, r.Offset)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return offsets, said.String()
}

// TestExportOfEverything: an export without a selection has all records, even of tasks without a first event. A file
// that lacked them would verify without faults.
func TestExportOfEverything(t *testing.T) {
	log, x := corruptLog(), &exporting{}
	offsets, note := exported(t, log, x)
	if len(offsets) != len(log) || x.events != len(log) || len(x.taken) != 4 || note != "" {
		t.Errorf("offsets %v of %d, %d events, %d tasks, said %q", offsets, len(log), x.events, len(x.taken), note)
	}
}

// TestExportOfARange: a range of submission times can select only tasks whose first event is there. A note names the
// tasks that are left out.
func TestExportOfARange(t *testing.T) {
	x := &exporting{until: time.UnixMilli(2500)}
	offsets, note := exported(t, corruptLog(), x)
	if len(offsets) != 3 || offsets[1] != 1 || offsets[2] != 3 || len(x.taken) != 1 {
		t.Errorf("offsets %v, %d tasks; want the claim and the task whole", offsets, len(x.taken))
	}
	if !strings.Contains(note, "3 tasks are left out") {
		t.Errorf("said %q", note)
	}
	x = &exporting{from: time.UnixMilli(2500)}
	if offsets, note = exported(t, corruptLog(), x); len(offsets) != 1 || len(x.taken) != 0 || !strings.Contains(note, "3 tasks are left out") {
		t.Errorf("offsets %v, %d tasks, said %q; want the claim only", offsets, len(x.taken), note)
	}
	if _, note = exported(t, corruptLog()[:2], &exporting{from: time.UnixMilli(1)}); note != "" {
		t.Errorf("of a whole log it is said %q", note)
	}
}

// harmed is a log with unreadable ranges.
type harmed struct {
	held
	lost []*logreader.CorruptError
}

func (h *harmed) read(ctx context.Context, id string, fn func(*events.Record) error, lost func(*logreader.CorruptError)) error {
	for _, d := range h.lost {
		lost(d)
	}
	return h.held.read(ctx, id, fn, lost)
}

// TestExportWithoutWhatIsLost: a file never lacks events of a task that it has. A task with an unreadable event is left
// out completely, and the file's head names it.
func TestExportWithoutWhatIsLost(t *testing.T) {
	lost := &logreader.CorruptError{Topic: "test.events", Offset: 8, Next: 9, Keys: []string{"whole", "gone"}, AllKeys: true}
	nameless := &logreader.CorruptError{Topic: "test.events", Offset: 8, Next: 9}
	for _, tt := range []struct {
		name    string
		lost    *logreader.CorruptError
		x       exporting
		code    int
		offsets string
		without string
	}{
		{"all", lost, exporting{}, exitUnreachable, "[0 2 4 5 6 7]", "[gone whole]"},
		{"some, one is lost", lost, exporting{ids: map[string]bool{"whole": false, "headless": false}}, exitUnreachable, "[0 2 6]", "[whole]"},
		{"some, none is lost", lost, exporting{ids: map[string]bool{"nameless": false, "headless": false}}, exitOK, "[0 2 4 5 6]", "[]"},
		{"one, it is lost", lost, exporting{ids: map[string]bool{"whole": false}}, exitUnreachable, "none", ""},
		{"one of which nothing else is there", lost, exporting{ids: map[string]bool{"gone": false}}, exitUnreachable, "none", ""},
		{"one that isn't there", lost, exporting{ids: map[string]bool{"nobody": false}}, exitNotFound, "none", ""},
		{"a range", lost, exporting{until: time.UnixMilli(2500)}, exitUnreachable, "[0]", "[gone whole]"},
		{"another range", lost, exporting{from: time.UnixMilli(2500)}, exitUnreachable, "[0]", "[gone]"},
		{"all, of any task", nameless, exporting{}, exitUnreachable, "[0]", "[garbage headless nameless whole]"},
	} {
		path := filepath.Join(t.TempDir(), "out.jsonl")
		var said bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetErr(&said)
		log := &harmed{corruptLog(), []*logreader.CorruptError{tt.lost}}
		code := exitOK
		if err := (&exportOptions{out: path}).write(cmd, log, &tt.x); err != nil {
			code = codeOf(err)
		}
		offsets, without := readExport(t, path)
		if code != tt.code || offsets != tt.offsets || without != tt.without {
			t.Errorf("%s: exit code %d, offsets %s without %s; want %d, %s, %s\n%s", tt.name, code, offsets, without, tt.code, tt.offsets, tt.without, said.String())
		}
		if tt.without != "" && !strings.Contains(said.String(), "left out") && code != exitOK {
			t.Errorf("%s: said %q", tt.name, said.String())
		}
	}
}

// readExport returns the offsets in a file, and the tasks that its head says are left out.
func readExport(t *testing.T, path string) (offsets, without string) {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "none", ""
	}
	r, err := replay.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var list []int64
	err = r.Each(func(r *events.Record) error {
		list = append(list, r.Offset)
		return nil
	})
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	w := r.Without()
	if w == nil {
		w = &replay.Without{}
	} else if len(w.Lost) != 1 || !strings.Contains(w.Lost[0], "the records 8 to 8") {
		t.Errorf("lost: %q", w.Lost)
	}
	return fmt.Sprint(list), fmt.Sprint(w.Tasks)
}

// TestExportToAPipeWithoutWhatIsLost: an export to standard output can start over only before the first byte is
// written. Later, it ends without its last line.
func TestExportToAPipeWithoutWhatIsLost(t *testing.T) {
	log := &harmed{corruptLog(), []*logreader.CorruptError{{Topic: "test.events", Offset: 8, Next: 9, Keys: []string{"whole"}, AllKeys: true}}}
	for _, size := range []int{10, 2 << 20} {
		log.held[1].Value = bytes.Repeat([]byte(" "), size)
		var out, said bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetOut(&out)
		cmd.SetErr(&said)
		err := (&exportOptions{}).write(cmd, log, &exporting{})
		if codeOf(err) != exitUnreachable {
			t.Fatal(err)
		}
		r, err := replay.NewReader(&out)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Each(func(r *events.Record) error {
			if size < 100 && string(r.Key) == "whole" {
				t.Errorf("%s is there", events.Origin(r))
			}
			return nil
		})
		if (err != nil) != (size > 100) {
			t.Errorf("with %d bytes: %v", size, err)
		}
	}
}
