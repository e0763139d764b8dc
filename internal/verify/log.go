package verify

import "github.com/waybill-run/waybill/events"

// Log is a Checker of events alone, with its results so far in its fields.
type Log struct {
	Events int
	Faults []Fault // the first MaxFaults
	c      *Checker
}

// NewLog makes a Log without events.
func NewLog() *Log { return &Log{c: New(Options{Keep: true})} }

// Add checks the next event of a partition and returns it; nil if it is unreadable, which is a fault.
func (l *Log) Add(r *events.Record) *events.Event {
	e := l.c.Event(r)
	l.Events, l.Faults = l.c.events, l.c.faults.list
	return e
}

// Tasks calls fn with the state of every task, until it returns false.
func (l *Log) Tasks(fn func(*events.Task) bool) { l.c.Tasks(fn) }

// Task returns the state of one task; nil if it is unknown.
func (l *Log) Task(id string) *events.Task { return l.c.Task(id) }
