package scheduler

import (
	"slices"
	"strings"

	"github.com/waybill-run/waybill/events"
)

// checkRecords checks the records of a decision against its events.
func (w *scenario) checkRecords(d *Decision) {
	if (d.Ignored != "" || d.Unusable != nil) && len(d.Events) > 0 {
		w.failf("ignored (%q) or unusable (%v), and yet events: %v", d.Ignored, d.Unusable, d.Events)
	}
	ns := events.Namespace(events.DefaultNamespace)
	next, requests := 0, 0
	var told, toTell []string
	alerts, held := 0, 0
	for i := range d.Records {
		r := &d.Records[i]
		if n := len(r.Key) + len(r.Value) + 4096; n > maxRecordBytes {
			w.failf("a record of %d bytes to %s", n, r.Topic)
		}
		switch _, request := ns.AgentOf(r.Topic); {
		case r.Topic == ns.Events():
			if next >= len(d.Events) {
				w.failf("more event records than events")
			}
			toTell = append(toTell, w.checkEvent(d.Events[next], r)...)
			if _, ok := d.Events[next].Fact.(*events.TaskHeld); ok {
				held++
			}
			if f, ok := d.Events[next].Fact.(*events.AttemptStarted); ok {
				requests++
				w.checkRequest(d, f, d.Events[next])
			}
			next++
		case request:
			requests--
			w.verify.Request(r)
		case r.Topic == ns.Notifications():
			told = append(told, w.notification(r))
		case r.Topic == ns.Alerts():
			alerts++
			w.verify.Alert(r)
		case r.Topic != ns.Answers():
			w.failf("a record to %s", r.Topic)
		}
	}
	if next != len(d.Events) || requests != 0 || alerts != held {
		w.failf("%d records of %d events, %d attempts without a request, %d alerts of %d holds", next, len(d.Events), requests, alerts, held)
	}
	if d.Ignored == IgnoredDuplicate && len(told) > 0 { // the present status is repeated
		toTell = []string{told[0]}
		id := events.TaskEventID("t", w.fold.StatusSeq)
		if strings.HasSuffix(told[0], " "+events.StatusReceived) { // with the id of the first notification
			id = events.TaskEventID("t", 1)
		}
		if !strings.HasPrefix(told[0], id+" ") {
			w.failf("the present status is that of %s; told: %v", id, told)
		}
	}
	if d.Unusable == nil && !slices.Equal(told, toTell) {
		w.failf("told %v instead of %v", told, toTell)
	}
}

// notification formats a notification as "<ce_id> <status>".
func (w *scenario) notification(r *events.Record) string {
	n, err := events.DecodeNotification(r)
	if err != nil {
		w.failf("%v", err)
	}
	id, _ := r.Header(events.HeaderID)
	if to, _ := r.Header(events.HeaderReplyTo); to != w.h.submission.ReplyTo && to != w.replyTo || n.Task != "t" || string(r.Key) != "t" {
		w.failf("a notification to %q of %q", to, n.Task)
	}
	return id + " " + n.Status
}
