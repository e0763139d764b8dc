package console

import (
	"context"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/redrive"
)

// TestRecentIsThePage: a list from what is known is the one that is read from the topic: with each bound, reason and page,
// and with what became of each dead letter.
func TestRecentIsThePage(t *testing.T) {
	t.Parallel()
	w := newRecording(t)
	w.other["waybill.deadletters"] = nil
	s := w.console(t, nil)
	reasons := []events.Reason{events.ReasonUnknownWorkflow, events.ReasonIDConflict, events.ReasonBadJSON}
	for i := range int64(40) {
		letter := w.deadSubmission("lost", i, reasons[i%3])
		if i%4 == 0 {
			again, err := events.Redrive(events.DefaultNamespace, "test", &letter)
			if err != nil {
				continue // its reason is none that a redrive could change
			}
			later := events.Deadletter(events.DefaultNamespace, "scheduler", &again, &events.Unusable{Reason: events.ReasonUnknownWorkflow})
			later.Partition, later.Offset, later.Time = 0, i, w.now.Add(-time.Second)
			w.other[later.Topic] = append(w.other[later.Topic], later)
		}
		for _, query := range []string{"limit=7", "limit=1000", "limit=3&reason=unknown_workflow,bad_json"} {
			route := api + "/deadletters"
			known := get[consoleapi.DeadletterPage](t, w, s, route, route+"?"+query)
			read := get[consoleapi.DeadletterPage](t, w, s, route, route+"?since=48h&"+query) // which aren't known
			known.NextPageToken, read.NextPageToken = "", ""                                  // they have the query
			if !reflect.DeepEqual(known, read) || len(known.Deadletters) == 0 && i > 3 {
				t.Fatalf("%s after %d:\n%+v\nread:\n%+v", query, i, known, read)
			}
		}
	}
}

// letterAt is a dead letter.
func letterAt(p int32, offset int64, at time.Time, size int) events.Record {
	return events.Record{Partition: p, Offset: offset, Time: at, Value: make([]byte, size), Headers: []events.Header{{Key: events.HeaderReason, Value: []byte("bad_json")}}}
}

// TestRecentIsBounded: the oldest records are forgotten, and lists that need them are read from the topic; of the others
// the newest are whole.
func TestRecentIsBounded(t *testing.T) {
	t.Parallel()
	start := time.UnixMilli(1_000_000)
	var k recentRecords
	for i := range int64(3 * recentMax) {
		r := letterAt(int32(i%3), i/3, start.Add(time.Duration(i)*time.Millisecond), 0)
		k.add(&r, deadletterLabels)
	}
	k.trim()
	if first := start.Add(2 * recentMax * time.Millisecond); len(k.list) != recentMax || !k.list[0].time.Equal(first) || k.complete.After(first) || !k.complete.After(first.Add(-time.Millisecond)) {
		t.Errorf("%d records, complete since %s", len(k.list), k.complete.Sub(start))
	}
	if k.bytes > recentMaxBytes || k.list[recentMax-1].record == nil {
		t.Errorf("%d bytes", k.bytes)
	}
	k = recentRecords{}
	for i := range int64(300) {
		r := letterAt(0, i, start, 1<<20)
		k.add(&r, deadletterLabels)
	}
	k.trim()
	whole := 0
	for i := range k.list {
		if k.list[i].record != nil {
			whole++
		}
	}
	if len(k.list) != 300 || whole != recentMaxBytes>>20-1 || k.list[299].record == nil || k.list[299].place.Offset != 299 || !k.complete.IsZero() {
		t.Errorf("%d records, %d of them whole", len(k.list), whole)
	}
}

// topicOfTest is a topic of one partition.
type topicOfTest struct {
	records []events.Record
	reads   []TopicPosition
	err     error
}

func (x *topicOfTest) read(_ context.Context, from TopicPosition, fn func(*events.Record)) (TopicPosition, error) {
	x.reads = append(x.reads, from)
	for i := range x.records {
		if r := &x.records[i]; r.Offset >= from.Offsets[0] {
			fn(r)
		}
	}
	return TopicPosition{Since: from.Since, TopicID: "a", Offsets: map[int32]int64{0: int64(len(x.records))}}, x.err
}

// TestRecentReadsOnce: only what was written since the last time is read. After an error, if the topic was recreated, and
// every hour, everything is read again; so nothing is listed twice or is missing.
func TestRecentReadsOnce(t *testing.T) {
	topic := &topicOfTest{}
	now := time.UnixMilli(1_000_000_000_000)
	x := newRecent(topic.read, deadletterLabels, func() time.Time { return now })
	afresh := func() bool { return topic.reads[len(topic.reads)-1].Offsets == nil }
	look := func(wantAfresh bool) {
		t.Helper()
		if _, err := x.refresh(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		n := len(topic.records)
		x.newestFirst(now.Add(-24*time.Hour), func(r *recentRecord, _ *redrive.Later) bool {
			if n--; n < 0 || r.place.Offset != topic.records[n].Offset {
				t.Errorf("%d isn't next", r.place.Offset)
			}
			return true
		})
		if n != 0 || afresh() != wantAfresh {
			t.Errorf("%d records are missing; all were read: %v", n, afresh())
		}
	}
	write := func() {
		topic.records = append(topic.records, letterAt(0, int64(len(topic.records)), now.Add(time.Duration(len(topic.records))), 1))
	}
	write()
	look(true)
	write()
	write()
	look(false)
	look(false)
	topic.err = context.DeadlineExceeded
	write()
	if _, err := x.refresh(t.Context(), time.Minute); err == nil {
		t.Error("an error is lost")
	}
	topic.err = nil
	look(true)
	write()
	look(false)
	now = now.Add(recentAgain)
	look(true)
	reads := 0
	x.read = func(ctx context.Context, from TopicPosition, fn func(*events.Record)) (TopicPosition, error) {
		if reads++; from.Offsets != nil {
			return from, ErrOtherTopic
		}
		return topic.read(ctx, from, fn)
	}
	topic.records = nil
	write()
	look(true)
	if reads != 2 {
		t.Errorf("%d reads", reads)
	}
}

// TestListsShareReads: any number of viewers costs the brokers one question, and nothing is asked while nobody looks.
func TestListsShareReads(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	for range 3 {
		for _, path := range []string{"/agents", "/partitions"} {
			if r := ask(t, s, http.MethodGet, api+path, ""); r.status != http.StatusOK {
				t.Fatalf("%d %s", r.status, r.body)
			}
		}
	}
	if n := w.asked.Load(); n < 2 || n > 4 { // more if the machine stands still for seconds
		t.Errorf("the groups were asked %d times", n)
	}
	l := get[consoleapi.AgentList](t, w, s, api+"/agents", api+"/agents")
	if l.SampledAt == nil {
		t.Error("it isn't said when the groups were asked")
	}
}
