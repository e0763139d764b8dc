// Package inboxgate decides which inboxes may flow. An inbox is one partition of a topic. Several reasons may pause it
// at the same time, and each reason ends independently. An inbox flows only while no reason pauses it.
//
// A Gate is the only caller of the Kafka client's pause and resume. It reads no clock and has no lock: its owner
// serializes the calls.
//
//	reason                  begins                                   ends
//	PausedForRestore        the partition is assigned, or its state  its state is restored (tasks, and inboxes with
//	                        was emptied                              inputs about unknown tasks: finished tasks are
//	                                                                 loaded)
//	PausedForRetry          the cluster refused output repeatedly    at an instant, later each time
//	PausedForDefinitions    the definitions can't be read            at an instant
//	PausedForAdmission      too many tasks are open, or an operator  enough have ended, or an operator resumes the intake
//	                        pauses an intake
//	PausedForQuarantine     the broker can't return a record         at an instant, later each time
//	PausedForSlots          an agent's process is busy               a request is done
//	PausedForPosition       the log ends below the position          the partition is assigned again
//	PausedForHistory        a processed task is to be undone         its events were read again from the log (controls)
package inboxgate

import (
	"maps"
	"time"
)

// Reason is why an inbox is paused.
type Reason int

// The package doc has a table of the reasons.
const (
	PausedForRestore Reason = iota
	PausedForRetry
	PausedForDefinitions
	PausedForAdmission
	PausedForQuarantine
	PausedForSlots
	PausedForPosition
	PausedForHistory
	reasonCount
)

var reasonNames = [reasonCount]string{"restore", "retry", "definitions", "admission", "quarantine", "slots", "position", "history"}

// String is the reason's name in errors and metrics.
func (r Reason) String() string { return reasonNames[r] }

// AllPartitions in an Inbox means the whole topic, including partitions that are assigned later. A partition flows if
// neither it nor its topic is paused.
const AllPartitions int32 = -1

// Inbox is a partition of a topic.
type Inbox struct {
	Topic     string
	Partition int32
}

// Client pauses and resumes fetches. The pause of a partition and the pause of its whole topic are independent.
type Client interface {
	Pause(Inbox)
	Resume(Inbox)
}

// Gate is the reasons that pause inboxes. Use New to create one.
type Gate struct {
	client Client
	paused map[Inbox]map[Reason]time.Time // the end of the pause; zero: at Resume
}

// New returns a gate without reasons.
func New(client Client) *Gate { return &Gate{client: client, paused: map[Inbox]map[Reason]time.Time{}} }

// Pause pauses an inbox for a reason, until an instant, or until Resume if until is zero. If the reason pauses the inbox
// already, the new instant replaces the old one.
func (g *Gate) Pause(in Inbox, why Reason, until time.Time) {
	if g.paused[in] == nil {
		g.paused[in] = map[Reason]time.Time{}
		g.client.Pause(in)
	}
	g.paused[in][why] = until
}

// Resume ends a reason. The inbox flows again if it was the last one.
func (g *Gate) Resume(in Inbox, why Reason) {
	if !g.IsPausedFor(in, why) {
		return
	}
	delete(g.paused[in], why)
	if len(g.paused[in]) == 0 {
		delete(g.paused, in)
		g.client.Resume(in)
	}
}

// PauseOnly makes why the only reason that pauses an inbox, until Resume. It drops the reasons of an earlier
// assignment.
func (g *Gate) PauseOnly(in Inbox, why Reason) {
	g.Pause(in, why, time.Time{})
	maps.DeleteFunc(g.paused[in], func(r Reason, _ time.Time) bool { return r != why })
}

// ResumeDue ends the reasons whose instant has passed.
func (g *Gate) ResumeDue(now time.Time) {
	for in, reasons := range g.paused {
		for why, until := range reasons {
			if !until.IsZero() && !now.Before(until) {
				g.Resume(in, why)
			}
		}
	}
}

// NextDue is the earliest instant at which ResumeDue ends a reason; zero: none.
func (g *Gate) NextDue() (next time.Time) {
	for _, reasons := range g.paused {
		for _, until := range reasons {
			if !until.IsZero() && (next.IsZero() || until.Before(next)) {
				next = until
			}
		}
	}
	return next
}

// IsPausedFor reports whether a reason pauses an inbox.
func (g *Gate) IsPausedFor(in Inbox, why Reason) bool {
	_, paused := g.paused[in][why]
	return paused
}

// Flows reports whether nothing pauses a partition of a topic, nor all of the topic.
func (g *Gate) Flows(in Inbox) bool {
	return len(g.paused[in]) == 0 && len(g.paused[Inbox{in.Topic, AllPartitions}]) == 0
}
