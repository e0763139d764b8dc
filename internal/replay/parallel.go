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
	// blocksWaiting bounds the parsed blocks of a partition that aren't delivered yet.
	blocksWaiting = 8
)

// block is some lines, and the records parsed from them.
type block struct {
	lines   [][]byte
	numbers []int // of the lines in the file
	records []parsed
	err     error // of the line after the last record
	done    chan struct{}
}

// RecordFunc takes a record. changed, if not nil, says that the record differs from what was exported.
type RecordFunc func(r *events.Record, changed *ChangedError)

// EachParallel is Each on all processors. Lines are parsed in parallel. of returns a function for each partition, which
// is called in a goroutine of its own with the partition's records, in order. of is called by one goroutine at a time,
// before the partition's first record. When EachParallel returns nil or a *CutError, all records have been passed.
func (f *Reader) EachParallel(ctx context.Context, of func(partition int32) RecordFunc) error {
	g, ctx := errgroup.WithContext(ctx)
	workers := runtime.GOMAXPROCS(0)
	parse, ordered := make(chan *block), make(chan *block, 2*workers)
	for range workers {
		g.Go(func() error {
			for b := range parse {
				b.parse(&f.head.Head)
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(parse)
		defer close(ordered)
		for {
			b, err := f.nextBlock()
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
	g.Go(func() error { return f.distribute(ctx, g, ordered, of) })
	if err := g.Wait(); err != nil {
		return err
	}
	return f.checkComplete()
}

// nextBlock reads the next lines; io.EOF after the last.
func (f *Reader) nextBlock() (*block, error) {
	b := &block{done: make(chan struct{})}
	for len(b.lines) < blockLines {
		line, err := f.nextLine()
		if err != nil {
			return b, err
		}
		b.lines = append(b.lines, append([]byte(nil), line...))
		b.numbers = append(b.numbers, f.line)
	}
	return b, nil
}

func (b *block) parse(h *Head) {
	defer close(b.done)
	b.records = make([]parsed, 0, len(b.lines))
	for i, line := range b.lines {
		p, err := h.parse(line, b.numbers[i])
		if err != nil {
			b.err = err
			return
		}
		b.records = append(b.records, p)
	}
}

// distribute passes each partition's records to its goroutine, in the order of the file.
func (f *Reader) distribute(ctx context.Context, g *errgroup.Group, ordered <-chan *block, of func(int32) RecordFunc) error {
	parts := map[int32]chan []parsed{}
	defer func() {
		for _, to := range parts {
			close(to)
		}
	}()
	for b := range ordered {
		select {
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		dealt := map[int32][]parsed{}
		for i := range b.records {
			p := &b.records[i]
			if err := f.checkOrder(p); err != nil {
				return fmt.Errorf("line %d: %w", b.numbers[i], err)
			}
			dealt[p.r.Partition] = append(dealt[p.r.Partition], *p)
		}
		if b.err != nil {
			return fmt.Errorf("line %d: %w", b.numbers[len(b.records)], b.err)
		}
		for p, rs := range dealt {
			to := parts[p]
			if to == nil {
				to = make(chan []parsed, blocksWaiting)
				parts[p] = to
				fn := of(p)
				g.Go(func() error {
					deliver(to, fn)
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

// deliver calls fn for the records of a partition.
func deliver(from <-chan []parsed, fn RecordFunc) {
	for rs := range from {
		for i := range rs {
			fn(&rs[i].r, rs[i].changed)
		}
	}
}
