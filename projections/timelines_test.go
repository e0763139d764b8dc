package projections_test

import (
	"reflect"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

func TestTimelinesHaveThePlaceOfEachEvent(t *testing.T) {
	rs := newHistory(2).records(1200)
	// An event that this build can't fold has a place too.
	for i := range rs[700].Headers {
		if rs[700].Headers[i].Key == events.HeaderType {
			rs[700].Headers[i].Value = []byte("waybill.step.teleported.v1")
		}
	}
	rs[900].Headers = nil
	places, counts := map[string][]projections.Place{}, map[string]int64{}
	for i := range rs {
		ceType, seq, err := events.EventName(&rs[i])
		if err != nil {
			continue
		}
		counts[ceType]++
		if id := string(rs[i].Key); id != "" {
			places[id] = append(places[id], projections.Place{Seq: seq, Offset: rs[i].Offset})
		}
	}
	fs := vfs.NewMem()
	s := open(t, fs, projections.ViewTimelines)
	v, err := s.Timelines(testPartition)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, v, rs[:800])
	v.Close()
	closeStore(t, s)
	s = open(t, fs, projections.ViewTimelines)
	defer closeStore(t, s)
	if v, err = s.Timelines(testPartition); err != nil {
		t.Fatal(err)
	}
	apply(t, v, rs)
	for id, want := range places {
		if got := v.Timeline(id); !reflect.DeepEqual(got, want) {
			t.Fatalf("timeline of %s:\n got %v\nwant %v", id, got, want)
		}
	}
	if got := v.Timeline("order"); got != nil {
		t.Fatalf("a timeline of nobody: %v", got)
	}
	if got := v.Counts(); !reflect.DeepEqual(got, counts) {
		t.Fatalf("counts %v, want %v", got, counts)
	}
	if st := v.Stopped(); len(st) != 1 || st[0].Offset != rs[900].Offset {
		t.Fatalf("left out: %+v; want the record at %d", st, rs[900].Offset)
	}
	if f := v.Find(string(rs[900].Key)); f.NoEvent == nil || f.NoEvent.Offset != rs[900].Offset {
		t.Fatalf("found of its task: %+v; want the record at %d", f.NoEvent, rs[900].Offset)
	}
}

func TestTimelineOfAnIDWithAnotherAsPrefix(t *testing.T) {
	s := open(t, vfs.NewMem(), projections.ViewTimelines)
	defer closeStore(t, s)
	v, err := s.Timelines(testPartition)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"a", "a/1", "a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "a\x00", "b", "a"} {
		r := events.Record{Partition: testPartition, Offset: int64(i), Key: []byte(id), Value: []byte(`{}`),
			Headers: events.CloudHeaders("t", "s", events.TaskEventID(id, uint64(i/5+1)))}
		apply(t, v, []events.Record{r})
	}
	if got := v.Timeline("a"); len(got) != 2 || got[0].Offset != 0 || got[1].Offset != 5 {
		t.Fatalf("got %+v", got)
	}
}
