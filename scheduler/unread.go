package scheduler

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// The definitions are asked for while a lane's other work waits.
const (
	definitionsMost  = time.Second     // that one reading takes, far below a stall
	definitionsAgain = 5 * time.Second // until one that failed is tried again
)

// errUnread: an input's workflow isn't known, and whether there is one can't be told now.
var errUnread = errors.New("the definitions can't be read to their end")

// unread keeps what has to wait while the definitions can't be read.
type unread struct {
	until  time.Time // nothing is read before
	paused map[int32][]string
}

// readDefinitions reads them to the end, once for a transaction: its inputs were polled
// before. What fails is not tried again for a while, or each partition's inputs would
// hold up the lane.
func (tx *transaction) readDefinitions(ctx context.Context) error {
	l, now := tx.lane, time.Now()
	if now.Before(l.unread.until) {
		return errUnread
	}
	bounded, cancel := context.WithTimeout(ctx, definitionsMost)
	defer cancel()
	err := l.cfg.Catalog.ReadToEndNow(bounded)
	if err == nil {
		tx.definitionsRead = true
		return nil
	}
	if ctx.Err() != nil || isPermanent(err) {
		return err
	}
	l.cfg.Listener.unread(err)
	l.unread.until = time.Now().Add(definitionsAgain)
	return errUnread
}

// awaitDefinitions stops an inbox of a partition for as long.
func (l *lane) awaitDefinitions(p int32, topic string) {
	l.log.Pause(p, topic)
	if !slices.Contains(l.unread.paused[p], topic) {
		l.unread.paused[p] = append(l.unread.paused[p], topic)
	}
}

// readAgain lets flow what waited for the definitions, so that they are asked for again.
func (l *lane) readAgain(now time.Time) {
	if now.Before(l.unread.until) {
		return
	}
	for id, topics := range l.unread.paused {
		delete(l.unread.paused, id)
		for _, topic := range topics {
			l.resume(id, topic)
		}
	}
}

// resume lets an inbox of a partition flow that was paused. What comes anew flows when it is
// restored, and tasks when its finished ones have been loaded.
func (l *lane) resume(id int32, topic string) {
	p := l.parts[id]
	if p == nil || !p.ready() || p.loading != nil && l.inboxes[topic] == events.Tasks {
		return
	}
	l.log.Resume(id, topic)
}
