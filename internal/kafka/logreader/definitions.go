package logreader

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// Definitions follows the definitions topic from its start to its end and then reads new records. It is safe for
// concurrent use.
type Definitions struct {
	cl    *kgo.Client
	adm   *kadm.Client
	topic string
	stop  context.CancelFunc
	done  chan struct{}

	mu sync.Mutex
	// position: fn has returned for all records below it.
	position int64
	// advanced is closed and replaced whenever position grows.
	advanced chan struct{}
	lastErr  error
	err      error
}

// WatchDefinitions starts a goroutine that calls fn with each record of the namespace's definitions, in order:
// including the format record (key "format") and every version that compaction has left. fn must not block for long.
// The goroutine ends with ctx, with Close, or with an error that no retry can fix (see Done). It waits for unavailable
// brokers.
func WatchDefinitions(ctx context.Context, c kafka.Config, fn func(events.Record)) (*Definitions, error) {
	cl, err := kgo.NewClient(c.ClientOptions()...)
	if err != nil {
		return nil, fmt.Errorf("watch definitions: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	d := &Definitions{cl: cl, adm: kadm.NewClient(cl), topic: c.Namespace.Definitions(), stop: stop,
		done: make(chan struct{}), advanced: make(chan struct{})}
	go d.run(ctx, fn)
	return d, nil
}

func (d *Definitions) run(ctx context.Context, fn func(events.Record)) {
	defer close(d.done)
	defer d.cl.Close()
	// Offset 0 rather than the listed start: compaction never moves the start. If the topic was trimmed, definitions
	// are lost, and that must be an error.
	r := newReader(d.cl, d.topic, 0, 0, false)
	r.compacted = true
	for {
		batch, err := r.next(ctx)
		for _, record := range batch {
			fn(record)
		}
		d.mu.Lock()
		if at := r.position(); at > d.position {
			d.position = at
			close(d.advanced)
			d.advanced = make(chan struct{})
		}
		d.lastErr, d.err = r.lastErr, kafka.FinalError(err)
		d.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// ReadToEndNow returns when fn has returned for every record that was committed at the time of the call. Only then is a
// workflow that fn didn't receive an unknown one.
func (d *Definitions) ReadToEndNow(ctx context.Context) error {
	listed, err := d.adm.ListCommittedOffsets(ctx, d.topic)
	ends, err := kafka.AllOffsets(d.topic, "committed end", listed, err)
	if err != nil {
		return errors.Join(err, d.Err())
	}
	for {
		d.mu.Lock()
		position, moved, trouble := d.position, d.advanced, d.lastErr
		d.mu.Unlock()
		if position >= ends[0] {
			return nil
		}
		select {
		case <-moved:
		case <-d.done:
			return fmt.Errorf("read definitions to %d: the watch ended at %d: %w", ends[0], position, d.endError())
		case <-ctx.Done():
			return fmt.Errorf("read definitions to %d, reached %d: %w", ends[0], position, errors.Join(ctx.Err(), trouble))
		}
	}
}

// Done returns a channel that is closed when the watch has ended; Err says why.
func (d *Definitions) Done() <-chan struct{} { return d.done }

// Err returns why the watch ended; nil while it runs and after Close.
func (d *Definitions) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if errors.Is(d.err, context.Canceled) {
		return nil
	}
	return d.err
}

func (d *Definitions) endError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Close ends the watch and waits until fn will not be called again. It must not be called from fn.
func (d *Definitions) Close() {
	d.stop()
	<-d.done
}
