package scheduler

import (
	"context"
	"fmt"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// TestRecreatedInboxIsReadFromItsStart recreates an inbox, and the worker opens a new client. All records of the new
// topic are decided once, even at offsets below those of the old topic. That holds even if the group's positions are
// lost later.
func TestRecreatedInboxIsReadFromItsStart(t *testing.T) {
	s := newSite(t, 1)
	w := s.worker(s.cluster.join(0))
	submit := func(ids ...string) {
		for _, id := range ids {
			s.cluster.write((&events.Submission{ID: id, Workflow: "w", Input: []byte("{}")}).Record(ns, "test"))
		}
	}
	submit("e-1", "e-2", "e-3")
	s.drain(w)
	topic := ns.Inbox(events.Tasks)

	var told []string
	s.cfg.Listener.Recreated = func(p int32, topic string, reflected int64, was, is string) {
		told = append(told, fmt.Sprintf("%s/%d at %d: %s, %s", topic, p, reflected, was, is))
	}
	s.cluster.recreate(topic)
	submit("e-4", "e-5")
	w.close(func() {})
	log := s.cluster.join(0)
	w = s.worker(log)
	s.drain(w)
	st := w.partitions[0].tasks.State()
	for _, id := range []string{"e-1", "e-2", "e-3", "e-4", "e-5"} {
		if w.partitions[0].tasks.Task(id) == nil {
			t.Errorf("%s is no task", id)
		}
	}
	if st.Reflected[events.Tasks] != 2 || st.TopicIDs[events.Tasks] != topic+"#1" || st.TopicIDs[events.Replies] != ns.Inbox(events.Replies)+"#0" {
		t.Errorf("reflected %v of %v", st.Reflected, st.TopicIDs)
	}
	if want := fmt.Sprintf("%s/0 at 3: %s#0, %s#1", topic, topic, topic); len(told) != 1 || told[0] != want {
		t.Errorf("reported %q, want %q", told, want)
	}
	if below := log.reflected[0]; below[topic] != 0 || below[ns.Inbox(events.Controls)] != st.Reflected[events.Controls] {
		t.Errorf("the log was told %v", below)
	}

	events1 := len(s.cluster.all(ns.Events()))
	delete(s.cluster.committed, topic)
	w.close(func() {})
	w = s.worker(s.cluster.join(0))
	s.drain(w)
	if n := len(s.cluster.all(ns.Events())); n != events1 {
		t.Errorf("%d events more after the group's positions were lost", n-events1)
	}
}

// TestTrimNamesTheTopicOfItsOffsets checks that flushed offsets of a topic never trim a recreated topic of the same
// name.
func TestTrimNamesTheTopicOfItsOffsets(t *testing.T) {
	f := &flushedInput{}
	st := events.PartitionState{TopicIDs: events.TopicIDs{events.Tasks: "a"}}
	st.Reflected[events.Tasks] = 7
	f.add(0, st, 1)
	st.TopicIDs[events.Tasks], st.Reflected[events.Tasks] = "b", 2
	f.add(1, st, 1)
	f.addForwarded(inboxOffsets{events.Tasks: {12: 5}}, events.TopicIDs{events.Tasks: "b"})
	cfg := Config{Namespace: ns, flushed: f}
	got := map[string]map[int32]int64{}
	cfg.Trim = func(_ context.Context, topic, id string, before map[int32]int64) error {
		if topic != ns.Inbox(events.Tasks) {
			t.Errorf("trims %s", topic)
		}
		got[id] = before
		return nil
	}
	cfg.trim(t.Context())
	if len(got) != 2 || got["a"][0] != 7 || len(got["a"]) != 1 || got["b"][1] != 2 || got["b"][12] != 5 {
		t.Errorf("trimmed %v", got)
	}
}
