package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// inboxRecords returns a usable record about a task for each inbox.
func inboxRecords(task string) map[events.Inbox]events.Record {
	control := &events.Control{Task: task, Command: events.Cancel, By: events.By{Who: "op", RequestID: "r-1"}}
	ref := events.RequestRef{Step: "a", Kind: events.Do, Attempt: 1}
	return map[events.Inbox]events.Record{
		events.Tasks:      (&events.Submission{ID: task, Workflow: "w", Input: []byte("{}")}).Record(ns, "test"),
		events.Replies:    (&events.Reply{Task: task, Ref: ref, Token: testToken(task, ref), Outcome: events.Completed, Body: []byte("{}")}).Record(ns, "test"),
		events.Recoveries: (&events.Recovery{Task: task, Timer: 2, Action: events.ActionUndo}).Record(ns, "test", -1),
		events.Controls:   control.Record(ns, "test"),
		events.Signals:    (&events.Signal{Task: task, Name: "approved", ID: "1"}).Record(ns, "test"),
	}
}

// TestPlacement checks that a record is decided in the partition of its task. A record in another partition is
// forwarded once, with the task's key. A record with another key becomes a dead letter. A record in an added partition,
// which has no events, is forwarded, too.
func TestPlacement(t *testing.T) {
	hop := events.Header{Key: events.HeaderHop, Value: []byte("1/7")}
	for _, tt := range []struct {
		name    string
		key     func(task string) []byte
		home    bool // in the partition of its task
		at      int32
		headers []events.Header
		dead    events.Reason
	}{
		{name: "at home", key: func(task string) []byte { return []byte(task) }, home: true},
		{name: "at home without a key", key: func(string) []byte { return nil }, home: true},
		{name: "at home by a hop", key: func(task string) []byte { return []byte(task) }, home: true, headers: []events.Header{hop}},
		{name: "misplaced", key: func(task string) []byte { return []byte(task) }, at: 1},
		{name: "misplaced without a key", key: func(string) []byte { return nil }, at: 1},
		{name: "misplaced again", key: func(task string) []byte { return []byte(task) }, at: 1, headers: []events.Header{hop}, dead: events.ReasonMisplaced},
		{name: "misplaced again without a key", key: func(string) []byte { return nil }, at: 1, headers: []events.Header{hop}, dead: events.ReasonMisplaced},
		{name: "in an added partition", key: func(task string) []byte { return []byte(task) }, at: 2},
		{name: "in an added partition of others", key: func(task string) []byte { return []byte(task) }, at: 3},
		{name: "in an added partition without a key", key: func(string) []byte { return nil }, at: 2},
		{name: "in an added partition by a hop", key: func(task string) []byte { return []byte(task) }, at: 2, headers: []events.Header{hop}, dead: events.ReasonMisplaced},
		{name: "in an added partition under another key", key: func(string) []byte { return []byte("other") }, at: 2, dead: events.ReasonWrongKey},
		{name: "under another key", key: func(string) []byte { return []byte("other") }, home: true, dead: events.ReasonWrongKey},
		{name: "misplaced under another key", key: func(string) []byte { return []byte("other") }, at: 1, dead: events.ReasonWrongKey},
	} {
		for inbox := range events.Inboxes {
			t.Run(tt.name+"/"+inbox.String(), func(t *testing.T) {
				s := newSite(t, 2)
				w, task := s.forRecordOf(inbox)
				r := inboxRecords(task)[inbox]
				r.Key, r.Headers, r.Partition = tt.key(task), append(r.Headers, tt.headers...), tt.at
				s.cluster.write(r)
				s.drain(w)
				s.placed(r, task, tt.home, tt.dead)
			})
		}
	}
}

// forRecordOf returns a worker of all partitions and the id of a task of the first one. The task exists, unless the
// inbox is for submissions. No offset is committed yet.
func (s *site) forRecordOf(inbox events.Inbox) (w *worker, task string) {
	s.catalog.unread = append(s.catalog.unread, waitsForSignal(s.t))
	w, task = s.worker(s.cluster.join(0, 1)), s.ofPartition(0, "t")
	if inbox != events.Tasks {
		s.submit(map[bool]string{true: "sign", false: "w"}[inbox == events.Signals], task)
		s.drain(w)
	}
	s.committed = nil
	return w, task
}

// placed checks the result of a record.
func (s *site) placed(r events.Record, task string, home bool, dead events.Reason) {
	s.t.Helper()
	forwarded, decided := 0, 0
	for _, c := range s.committed {
		forwarded += c.Forwarded
		decided += c.Inputs - c.Forwarded - c.Deadletters[dead]
	}
	if dead != "" {
		if got := s.headers(ns.Deadletters(), events.HeaderReason); !slices.Equal(got, []string{string(dead)}) || forwarded+decided > 0 {
			s.t.Errorf("dead letters %v, %d forwarded, %d decided; want %s", got, forwarded, decided, dead)
		}
		letter := s.cluster.all(ns.Deadletters())[0]
		if origin, _ := letter.Header(events.HeaderOrigin); !strings.HasPrefix(origin, r.Topic+"/") || string(letter.Value) != string(r.Value) {
			s.t.Errorf("the dead letter of %s holds %s", origin, letter.Value)
		}
		return
	}
	if n := len(s.cluster.all(ns.Deadletters())); n > 0 || decided != 1 {
		s.t.Errorf("%d dead letters, %d decided: %v", n, decided, s.headers(ns.Deadletters(), events.HeaderDetail))
	}
	if home != (forwarded == 0) || forwarded > 1 {
		s.t.Errorf("forwarded %d times", forwarded)
	}
	if home {
		return
	}
	log := s.cluster.logs[r.Topic][0]
	last := log[len(log)-1]
	hop, _ := last.Header(events.HeaderHop)
	if string(last.Key) != task || string(last.Value) != string(r.Value) || hop != fmt.Sprintf("%d/0", r.Partition) || len(last.Headers) != len(r.Headers)+1 {
		s.t.Errorf("forwarded as %q under the key %q with the hop %q and the headers %v", last.Value, last.Key, hop, last.Headers)
	}
}

// TestForwardIsBounded checks records that are larger than any record that Waybill's client can write. A record above
// the limit becomes a dead letter. Otherwise the worker would fail on it forever.
func TestForwardIsBounded(t *testing.T) {
	filler := func(n int) events.Header { return events.Header{Key: "x-own", Value: make([]byte, n)} }
	for _, tt := range []struct {
		name    string
		at      int32
		headers []events.Header
		dead    events.Reason
	}{
		{"a header of some size", 1, []events.Header{filler(300 << 10)}, ""},
		{"a large header at home", 0, []events.Header{filler(1_010_000)}, ""},
		{"a large header", 1, []events.Header{filler(1_010_000)}, events.ReasonTooLarge},
		{"a large header in an added partition", 2, []events.Header{filler(1_010_000)}, events.ReasonTooLarge},
		{"the name of a header", 1, []events.Header{{Key: strings.Repeat("n", 1_010_000)}}, events.ReasonTooLarge},
		{"a header that is kept", 1, []events.Header{{Key: events.HeaderTraceparent, Value: make([]byte, 1_900_000)}}, events.ReasonTooLarge},
		{"headers of nothing", 1, make([]events.Header, 900_000), events.ReasonTooLarge},
	} {
		for inbox := range events.Inboxes {
			t.Run(tt.name+"/"+inbox.String(), func(t *testing.T) {
				s := newSite(t, 2)
				w, task := s.forRecordOf(inbox)
				s.cfg.Listener.RecordRefused = func(topic string, err error) { t.Fatalf("%s: %v", topic, err) }
				r := inboxRecords(task)[inbox]
				r.Key, r.Headers, r.Partition = nil, append(r.Headers, tt.headers...), tt.at
				s.cluster.write(r)
				s.drain(w)
				s.placed(r, task, tt.at == 0, tt.dead)
			})
		}
	}
}

// TestOffsetsOfAnAddedPartition checks that offsets of an added partition are independent of those of the partition
// that it is assigned with. No record of either may be skipped.
func TestOffsetsOfAnAddedPartition(t *testing.T) {
	s := newSite(t, 1)
	w := s.worker(s.cluster.join(0))
	write := func(task string, p int32) {
		r := (&events.Submission{ID: task, Workflow: "w", Input: []byte("{}")}).Record(ns, "test")
		r.Partition = p
		s.cluster.write(r)
	}
	for _, task := range []string{"t-1", "t-2", "t-3"} { // first, at offsets 0 to 2
		write(task, 1)
	}
	s.drain(w)
	write("t-4", 0)
	write("t-5", 1) // at offset 3, while the other partition is at 4
	s.drain(w)
	for _, task := range []string{"t-1", "t-2", "t-3", "t-4", "t-5"} {
		if got := s.events(task); !slices.Equal(got, life[:3]) {
			t.Errorf("%s: %v", task, got)
		}
	}
}

// TestUnusableInputsBecomeDeadLetters checks that an unusable input becomes a dead letter, and that the next record is
// decided in the same transaction.
func TestUnusableInputsBecomeDeadLetters(t *testing.T) {
	for inbox := range events.Inboxes {
		s := newSite(t, 1)
		log := s.cluster.join(0)
		w := s.worker(log)
		s.until(w, "it is restored", func() bool { return w.partitions[0].ok() })
		for _, value := range [][]byte{nil, []byte("{"), []byte("\xff\xfe"), []byte("null"), make([]byte, events.MaxSubmissionBytes+1)} {
			s.cluster.write(events.Record{Topic: ns.Inbox(inbox), Value: value}, events.Record{Topic: ns.Inbox(inbox), Partition: 1, Value: value}) // partition 1 was added
		}
		s.submit("w", "t-1")
		s.drain(w)
		if n := len(s.cluster.all(ns.Deadletters())); n != 10 {
			t.Errorf("%s: %d dead letters of 10: %v", inbox, n, s.headers(ns.Deadletters(), events.HeaderReason))
		}
		if got := s.events("t-1"); !slices.Equal(got, life[:3]) {
			t.Errorf("%s: the task beside them: %v", inbox, got)
		}
	}
}

// TestAddedPartitionsAreTrimmed checks that an added partition is trimmed once its forwards and dead letters are
// committed. Other partitions are trimmed up to the reflected offset.
func TestAddedPartitionsAreTrimmed(t *testing.T) {
	s := newSite(t, 1)
	trimmed := map[string]map[int32]int64{}
	s.cfg.Trim = func(_ context.Context, topic, _ string, before map[int32]int64) error {
		trimmed[topic] = before
		return nil
	}
	log := s.cluster.join(0)
	w := s.worker(log)
	rolledBack := 2
	log.end = func(func()) (bool, bool, error) {
		rolledBack--
		if s.cfg.trim(t.Context()); len(trimmed) > 0 {
			t.Errorf("trimmed before it was committed: %v", trimmed)
		}
		return false, rolledBack >= 0, nil
	}
	for _, task := range []string{"t-1", "t-2"} {
		r := (&events.Submission{ID: task, Workflow: "w", Input: []byte("{}")}).Record(ns, "test")
		r.Partition = 1
		s.cluster.write(r)
	}
	s.cluster.write(events.Record{Topic: ns.Inbox(events.Replies), Partition: 1, Value: []byte("no JSON")})
	s.until(w, "a transaction has brought all of it", func() bool { return log.commits > 0 })
	log.end = nil
	s.drain(w)
	s.cfg.trim(t.Context())
	if at, dead := trimmed[ns.Inbox(events.Tasks)][1], trimmed[ns.Inbox(events.Replies)][1]; at != 2 || dead != 1 {
		t.Errorf("trimmed below %d and %d, want 2 and 1: %v", at, dead, trimmed)
	}
}
