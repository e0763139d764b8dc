package replay

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// recordSource is a Source of records in memory.
type recordSource []events.Record

func (s recordSource) Read(_ context.Context, _ string, fn func(*events.Record) error, _ func(Loss)) error {
	for i := range s {
		if err := fn(&s[i]); err != nil {
			return err
		}
	}
	return nil
}

func (recordSource) Head() Head { return Head{Namespace: "test.", Partitions: 1} }

// corruptLog returns a log with a complete task, one without its first event, one whose first event has an unreadable
// seq, and a record that is no event.
func corruptLog() (log recordSource) {
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

// exported returns the offsets that an export of a log writes, and its result.
func exported(t *testing.T, log recordSource, x *Export) (offsets []int64, result Exported) {
	t.Helper()
	var out bytes.Buffer
	result, err := x.Run(t.Context(), log, &out)
	if err != nil || !result.Omission.IsEmpty() {
		t.Fatal(err, result)
	}
	r, err := NewReader(&out)
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
	return offsets, result
}

// TestExportOfEverything: an export without a selection has all records, even of tasks without a first event. A file
// that lacked them would verify without faults.
func TestExportOfEverything(t *testing.T) {
	log := corruptLog()
	offsets, got := exported(t, log, &Export{})
	if len(offsets) != len(log) || got.Events != len(log) || got.Tasks != 4 || got.Headless != 0 {
		t.Errorf("offsets %v of %d, %+v", offsets, len(log), got)
	}
}

// TestExportOfARange: a range of submission times can select only tasks whose first event is there. The result counts
// the tasks that are left out.
func TestExportOfARange(t *testing.T) {
	offsets, got := exported(t, corruptLog(), &Export{Until: time.UnixMilli(2500)})
	if len(offsets) != 3 || offsets[1] != 1 || offsets[2] != 3 || got.Tasks != 1 || got.Headless != 3 {
		t.Errorf("offsets %v, %+v; want the claim and the task whole", offsets, got)
	}
	offsets, got = exported(t, corruptLog(), &Export{From: time.UnixMilli(2500)})
	if len(offsets) != 1 || got.Tasks != 0 || got.Headless != 3 {
		t.Errorf("offsets %v, %+v; want the claim only", offsets, got)
	}
	if _, got = exported(t, corruptLog()[:2], &Export{From: time.UnixMilli(1)}); got.Headless != 0 {
		t.Errorf("of a whole log: %+v", got)
	}
}
