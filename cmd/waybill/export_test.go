package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// memorySource is a replay.Source of records in memory, with unreadable ranges.
type memorySource struct {
	records []events.Record
	lost    []replay.Loss
}

func (m memorySource) Read(_ context.Context, _ string, fn func(*events.Record) error, lost func(replay.Loss)) error {
	for _, at := range m.lost {
		lost(at)
	}
	for i := range m.records {
		if err := fn(&m.records[i]); err != nil {
			return err
		}
	}
	return nil
}

func (memorySource) Head() replay.Head { return replay.Head{Namespace: "test.", Partitions: 1} }

// corruptLog returns a log with a complete task, one without its first event, one whose first event has an unreadable
// seq, and a record that is no event.
func corruptLog() (log []events.Record) {
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

// TestExportWithoutWhatIsLost: a file never lacks events of a task that it has. A task with an unreadable event is left
// out completely, and the file's head names it.
func TestExportWithoutWhatIsLost(t *testing.T) {
	lost := lossOf(&logreader.CorruptError{Topic: "test.events", Offset: 8, Next: 9, Keys: []string{"whole", "gone"}, AllKeys: true})
	nameless := lossOf(&logreader.CorruptError{Topic: "test.events", Offset: 8, Next: 9})
	for _, tt := range []struct {
		name    string
		lost    replay.Loss
		x       replay.Export
		code    int
		offsets string
		without string
	}{
		{"all", lost, replay.Export{}, exitUnreachable, "[0 2 4 5 6 7]", "[gone whole]"},
		{"some, one is lost", lost, replay.Export{IDs: []string{"whole", "headless"}}, exitUnreachable, "[0 2 6]", "[whole]"},
		{"some, none is lost", lost, replay.Export{IDs: []string{"nameless", "headless"}}, exitOK, "[0 2 4 5 6]", "[]"},
		{"one, it is lost", lost, replay.Export{IDs: []string{"whole"}}, exitUnreachable, "none", ""},
		{"a task without other events", lost, replay.Export{IDs: []string{"gone"}}, exitUnreachable, "none", ""},
		{"one that isn't there", lost, replay.Export{IDs: []string{"nobody"}}, exitNotFound, "none", ""},
		{"a range", lost, replay.Export{Until: time.UnixMilli(2500)}, exitUnreachable, "[0]", "[gone whole]"},
		{"another range", lost, replay.Export{From: time.UnixMilli(2500)}, exitUnreachable, "[0]", "[gone]"},
		{"all, of any task", nameless, replay.Export{}, exitUnreachable, "[0]", "[garbage headless nameless whole]"},
	} {
		path := filepath.Join(t.TempDir(), "out.jsonl")
		var said bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetErr(&said)
		log := memorySource{corruptLog(), []replay.Loss{tt.lost}}
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
	log := memorySource{corruptLog(), []replay.Loss{lossOf(&logreader.CorruptError{Topic: "test.events", Offset: 8, Next: 9, Keys: []string{"whole"}, AllKeys: true})}}
	for _, size := range []int{10, 2 << 20} {
		log.records[1].Value = bytes.Repeat([]byte(" "), size)
		var out, said bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetOut(&out)
		cmd.SetErr(&said)
		err := (&exportOptions{}).write(cmd, log, &replay.Export{})
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
