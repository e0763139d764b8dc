package main

import (
	"context"
	"fmt"

	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/console/onkafka"
)

// explainMissing returns the error for a task that isn't in the log. It says whether its submission waits for a
// scheduler.
func (l *logbook) explainMissing(ctx context.Context, id string) error {
	if l.history {
		return notFound(id)
	}
	var w *console.Waiting
	err := l.askBrokers(ctx, func(ctx context.Context) (err error) {
		w, err = onkafka.FindWaiting(ctx, l.admin, l.reader, l.cfg.Namespace, l.partitions, id)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w; whether its submission is pending is unknown: %w", notFound(id), err)
	case w == nil:
		return notFound(id)
	}
	return exit(exitNotFound, "%s", w.Describe(id))
}
