package scheduler

import (
	"context"
	"errors"
	"time"
)

// The worker blocks while it reads the definitions.
const (
	definitionsReadWithin = time.Second     // timeout of one read, far below a stall
	definitionsRetryAfter = 5 * time.Second // pause after a failed read
)

// errDefinitionsUnread: an input names an unknown workflow, and the definitions can't be read to their end now.
var errDefinitionsUnread = errors.New("the definitions can't be read to their end")

// readDefinitions reads the definitions to their end, once per transaction: its inputs were polled before. A failed
// read isn't retried for definitionsRetryAfter, since the inputs of each partition would block the worker.
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
