package scheduler

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// TestInboxesFlowAfterTwoReasons pauses the tasks inbox of a partition for two reasons: its output was refused, and the
// definitions can't be read. The end of one reason must not remove the other. When both have ended, all inboxes are
// read.
func TestInboxesFlowAfterTwoReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		log := s.cluster.join(0)
		w := s.worker(log)
		s.submit("w", "known")
		s.drain(w)

		// Output of replies is refused, and the definitions can't be read.
		refuses, waited := true, time.Duration(0)
		log.refuse = func(r *events.Record) bool { return refuses && r.Topic == ns.Events() }
		s.cfg.Listener.PartitionPaused = func(_ int32, wait time.Duration) { waited = wait }
		s.complete("inventory")
		s.until(w, "its partition waits long", func() bool { return waited == 4*time.Second })
		s.catalog.err = errors.New("no broker")
		s.submit("typo", "unknown")
		reads := s.catalog.reads
		s.until(w, "the definitions were asked for", func() bool { return s.catalog.reads > reads })
		s.until(w, "its partition waits longer than for the definitions", func() bool { return waited > definitionsRetryAfter })
		s.catalog.err, refuses = nil, false
		s.drain(w)
		s.submit("w", "next")
		s.drain(w)
		s.cluster.write((&events.Control{Task: "next", ID: "x", Command: events.Cancel, By: events.By{Who: "op", RequestID: "x"}}).Record(ns, "test"))
		s.complete("inventory")
		s.drain(w)
		s.lived("known")
		if got := s.headers(ns.Answers(), events.HeaderType); len(got) != 1 {
			t.Errorf("the control has the answers %v", got)
		}
	})
}

// flows reports whether an inbox isn't paused.
func (l *fakeLog) flows(topic string, p int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate.Flows(inboxgate.Inbox{Topic: topic, Partition: p})
}

// refuses calls refuse without the lock. It may wait in a bubble, where waiting for a mutex isn't durable blocking.
func (l *fakeLog) refuses(r *events.Record) bool {
	refuse := l.refuse
	if refuse == nil {
		return false
	}
	l.mu.Unlock()
	defer l.mu.Lock()
	return refuse(r)
}
