package kafkatest

import (
	"context"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

const (
	// followOpenTimeout bounds the opening of a follower; followRetryInterval is how long it
	// waits before it begins anew: a broker is dead, say.
	followOpenTimeout   = 5 * time.Second
	followRetryInterval = 200 * time.Millisecond
)

// Follow reads until ctx ends, whatever becomes of the broker: take is given what
// comes, failed the error after which it begins anew; both by the goroutine that
// called.
func Follow(ctx context.Context, cfg kafka.FollowerConfig, take func([]events.Record), failed func(error)) {
	read := func() error {
		opening, cancel := context.WithTimeout(ctx, followOpenTimeout)
		f, err := kafka.OpenFollower(opening, cfg)
		cancel()
		if err != nil {
			return err
		}
		defer f.Close()
		for {
			records, err := f.Poll(ctx)
			if err != nil {
				return err
			}
			take(records)
		}
	}
	for ctx.Err() == nil {
		failed(read())
		select {
		case <-ctx.Done():
		case <-time.After(followRetryInterval):
		}
	}
}
