package scheduler

import (
	"context"
	"errors"
	"time"
)

// The worker is blocked while it reads the definitions, so the time is bounded.
const (
	definitionsReadWithin = time.Second     // timeout of one read, far below a stall
	definitionsRetryAfter = 5 * time.Second // pause after a failed read
)

// errDefinitionsUnread says that an input names an unknown workflow, and that the definitions can't be read to their
// end at present.
var errDefinitionsUnread = errors.New("the definitions can't be read to their end")

// readDefinitions reads the definitions to their end, at most once per transaction, since all of its inputs were polled
// before. A failed read isn't retried for definitionsRetryAfter. Otherwise the inputs of each partition would block the
// worker.
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
	w.cfg.Listener.DefinitionsReadFailed(err)
	w.definitionsRetryAt = time.Now().Add(definitionsRetryAfter)
	return errDefinitionsUnread
}
