package scheduler

import (
	"slices"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// TestStatusQuery: a submission that asks for the status of a task is answered with the task's present status. If the task
// isn't known it is answered with "forgotten", and starts none.
func TestStatusQuery(t *testing.T) {
	s := newSite(t, 1)
	s.refundable()
	w := s.worker(s.cluster.join(0))
	s.processRefundable(w, "t-1")
	for _, id := range []string{"t-1", "t-2"} {
		query := &events.Submission{ID: id, Workflow: "r", Input: []byte("{}"), ReplyTo: "shop.orders", StatusQuery: true}
		if id == "t-1" {
			query.ReplyTo = ""
		}
		s.cluster.write(query.Record(ns, "test"))
	}
	s.drain(w)
	s.lived("t-1")
	if got := s.events("t-2"); len(got) > 0 {
		t.Errorf("a status query led to %v", got)
	}
	if dead := s.cluster.all(ns.Deadletters()); len(dead) > 0 {
		t.Errorf("dead letters: %+v", dead)
	}
	var got []string
	for _, r := range s.cluster.all(ns.Notifications()) {
		n, err := events.DecodeNotification(&r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n.Task+" "+n.Status)
	}
	if want := []string{"t-2 forgotten"}; !slices.Equal(got, want) {
		t.Errorf("notifications %q, want %q", got, want)
	}
	w.close(func() {})
}
