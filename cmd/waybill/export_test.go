package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/replay"
)

// held is an eventSource of records at hand.
type held []events.Record

func (h held) read(_ context.Context, _ string, fn func(*events.Record) error, _ func(*kafka.DamagedError)) error {
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

// damagedLog is a log with a whole task, one whose first event is lost, one whose first
// event has no seq that can be read, and what is no event of any task.
func damagedLog() held {
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

// exported is what an export of a log writes and says.
func exported(t *testing.T, log held, x *exporting) (offsets []int64, note string) {
	t.Helper()
	var out, said bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetErr(&said)
	if err := x.run(cmd, log, &out); err != nil {
		t.Fatal(err)
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

// Everything is everything: what the log has no first event of, too. A file that lacks it
// would verify clean.
func TestExportOfEverything(t *testing.T) {
	log, x := damagedLog(), &exporting{}
	offsets, note := exported(t, log, x)
	if len(offsets) != len(log) || x.events != len(log) || len(x.taken) != 4 || note != "" {
		t.Errorf("offsets %v of %d, %d events, %d tasks, said %q", offsets, len(log), x.events, len(x.taken), note)
	}
}

// By the time of submission only those can be chosen whose first event is there: of the
// others it is said that they are left out.
func TestExportOfARange(t *testing.T) {
	x := &exporting{until: time.UnixMilli(2500)}
	offsets, note := exported(t, damagedLog(), x)
	if len(offsets) != 3 || offsets[1] != 1 || offsets[2] != 3 || len(x.taken) != 1 {
		t.Errorf("offsets %v, %d tasks; want the claim and the task whole", offsets, len(x.taken))
	}
	if !strings.Contains(note, "3 tasks are left out") {
		t.Errorf("said %q", note)
	}
	x = &exporting{from: time.UnixMilli(2500)}
	if offsets, note = exported(t, damagedLog(), x); len(offsets) != 1 || len(x.taken) != 0 || !strings.Contains(note, "3 tasks are left out") {
		t.Errorf("offsets %v, %d tasks, said %q; want the claim only", offsets, len(x.taken), note)
	}
	if _, note = exported(t, damagedLog()[:2], &exporting{from: time.UnixMilli(1)}); note != "" {
		t.Errorf("of a whole log it is said %q", note)
	}
}
