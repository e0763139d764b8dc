package kafkatest

import (
	"context"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

const (
	// followOpenTimeout bounds the opening of a follower. followRetryInterval is the pause before the next attempt,
	// after a broker failure for example.
	followOpenTimeout   = 5 * time.Second
	followRetryInterval = 200 * time.Millisecond
)

// Follow reads until ctx ends, and reopens the follower after an error. The calling goroutine passes records to take,
// and each error to failed.
func Follow(ctx context.Context, cfg logreader.FollowerConfig, take func([]events.Record), failed func(error)) {
	read := func() error {
		opening, cancel := context.WithTimeout(ctx, followOpenTimeout)
		f, err := logreader.OpenFollower(opening, cfg)
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
		_ = backoff.Sleep(ctx, followRetryInterval)
	}
}
