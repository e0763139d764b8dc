package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// volley is the context under which the replies of the moment are produced.
//
// The client looks at the context of the first record of a batch only, and
// fails with it all that waits for the same partition; one that is further back
// would be written after its own context has ended. So all share one context
// here, which ends as soon as that of any of them does, and those whose time is
// not over are produced again under the next.
type volley struct {
	mu   sync.Mutex
	ctx  context.Context
	stop context.CancelFunc
}

func (v *volley) current() context.Context {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ctx == nil || v.ctx.Err() != nil {
		v.ctx, v.stop = context.WithCancel(context.Background())
	}
	return v.ctx
}

// end ends a volley, unless another has begun.
func (v *volley) end(ctx context.Context) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ctx == ctx {
		v.stop()
	}
}

// Send writes one reply and returns when all in-sync replicas have it, or when
// ctx ends, whichever is first; a negative Partition is that of the key. The
// context of a reply is its attempt's complete-by:
//
//   - What has not been handed to a connection when ctx ends is never written:
//     not by a retry, not after a reconnect, not from a buffer.
//   - What has been may arrive, as anything that is on its way; the error is
//     then that of ctx although the reply is in the log. The scheduler judges
//     by the order of the log.
//   - When the time of one reply ends unacknowledged, others in flight may be
//     written twice: the client can't take back one alone, so it takes back all
//     and those with time left are sent again. The second is not current and is
//     counted, no more.
func (s *Session) Send(ctx context.Context, rec events.Record) error {
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("reply to %s: its time is over, not sent: %w", rec.Topic, err)
		}
		flight := s.replies.current()
		result := make(chan error, 1)
		s.cl.TryProduce(flight, toKgo(&rec), func(_ *kgo.Record, err error) { result <- err })
		select {
		case err := <-result:
			if err == nil {
				return nil
			}
			if flight.Err() != nil && !errors.Is(err, kgo.ErrClientClosed) {
				continue // another's time ended, or ours: the loop sees which
			}
			return produceError(rec.Topic, err)
		case <-ctx.Done():
			s.replies.end(flight)
			return fmt.Errorf("reply to %s: its time ended before it was acknowledged: %w", rec.Topic, ctx.Err())
		}
	}
}
