package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/events"
)

const (
	// blockLines are parsed by one goroutine at a time.
	blockLines = 256
	// blocksWaiting bounds what is parsed of a partition and not taken yet.
	blocksWaiting = 8
)

// block is some lines, and the records that they are.
type block struct {
	lines   [][]byte
	numbers []int // of the lines in the file
	records []events.Record
	err     error // of the line after the last record
	parsed  chan struct{}
}

// EachApart is Each by all processors: lines are parsed side by side, and each
// partition's records are given, in order, to what of made for it, in a goroutine of
// its own. of itself is called by one goroutine at a time, before the partition's first
// record.
func (f *Reader) EachApart(ctx context.Context, of func(partition int32) func(*events.Record)) error {
	g, ctx := errgroup.WithContext(ctx)
	workers := runtime.GOMAXPROCS(0)
	parse, ordered := make(chan *block), make(chan *block, 2*workers)
	for range workers {
		g.Go(func() error {
			for b := range parse {
				b.parse(&f.head)
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(parse)
		defer close(ordered)
		for {
			b, err := f.block()
			if len(b.lines) > 0 {
				for _, to := range []chan *block{ordered, parse} {
					select {
					case to <- b:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return fmt.Errorf("line %d: %w", f.line, err)
			}
		}
	})
	g.Go(func() error { return f.deal(ctx, g, ordered, of) })
	return g.Wait()
}

// block takes the next lines; io.EOF after the last.
func (f *Reader) block() (*block, error) {
	b := &block{parsed: make(chan struct{})}
	for len(b.lines) < blockLines {
		line, err := f.next()
		if err != nil {
			return b, err
		}
		b.lines = append(b.lines, append([]byte(nil), line...))
		b.numbers = append(b.numbers, f.line)
	}
	return b, nil
}

func (b *block) parse(h *Head) {
	defer close(b.parsed)
	b.records = make([]events.Record, 0, len(b.lines))
	for _, line := range b.lines {
		r, err := h.parse(line)
		if err != nil {
			b.err = err
			return
		}
		b.records = append(b.records, r)
	}
}

// deal gives each partition's goroutine its records, in the order of the file.
func (f *Reader) deal(ctx context.Context, g *errgroup.Group, ordered <-chan *block, of func(int32) func(*events.Record)) error {
	parts := map[int32]chan []events.Record{}
	defer func() {
		for _, to := range parts {
			close(to)
		}
	}()
	for b := range ordered {
		select {
		case <-b.parsed:
		case <-ctx.Done():
			return ctx.Err()
		}
		dealt := map[int32][]events.Record{}
		for i := range b.records {
			r := &b.records[i]
			if err := f.inOrder(r); err != nil {
				return fmt.Errorf("line %d: %w", b.numbers[i], err)
			}
			dealt[r.Partition] = append(dealt[r.Partition], *r)
		}
		if b.err != nil {
			return fmt.Errorf("line %d: %w", b.numbers[len(b.records)], b.err)
		}
		for p, rs := range dealt {
			to := parts[p]
			if to == nil {
				to = make(chan []events.Record, blocksWaiting)
				parts[p] = to
				fn := of(p)
				g.Go(func() error {
					take(to, fn)
					return nil
				})
			}
			select {
			case to <- rs:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// take gives fn what comes of a partition.
func take(from <-chan []events.Record, fn func(*events.Record)) {
	for rs := range from {
		for i := range rs {
			fn(&rs[i])
		}
	}
}
