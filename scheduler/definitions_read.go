package scheduler

import (
	"context"
	"errors"
	"time"
)

// The definitions are asked for while a worker's other work waits.
const (
	definitionsReadWithin = time.Second     // that one reading takes, far below a stall
	definitionsRetryAfter = 5 * time.Second // until one that failed is tried again
)

// errDefinitionsUnread: an input's workflow isn't known, and whether there is one can't be told now.
var errDefinitionsUnread = errors.New("the definitions can't be read to their end")

// readDefinitions reads them to the end, once for a transaction: its inputs were polled
// before. What fails is not tried again for a while, or each partition's inputs would
// hold up the worker.
func (tx *transaction) readDefinitions(ctx context.Context) error {
	w, now := tx.worker, time.Now()
	if now.Before(w.definitionsRetryAt) {
		return errDefinitionsUnread
	}
	bounded, cancel := context.WithTimeout(ctx, definitionsReadWithin)
	defer cancel()
	err := w.cfg.Catalog.ReadToEndNow(bounded)
	if err == nil {
		tx.definitionsRead = true
		return nil
	}
	if ctx.Err() != nil || isPermanent(err) {
		return err
	}
	w.cfg.Listener.definitionsReadFailed(err)
	w.definitionsRetryAt = time.Now().Add(definitionsRetryAfter)
	return errDefinitionsUnread
}
