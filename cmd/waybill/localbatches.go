package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/waybill-run/waybill/internal/batchrun"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/kafka"
)

// newBatches returns the batches of a local console; nil: it has none.
func (c *localConsole) newBatches(cfg *console.Config, o *indexOptions) (*batchrun.Service, error) {
	l, is := c.source.(logSource)
	if !is || !o.batches {
		return nil, nil
	}
	producer, err := kafka.OpenProducer(l.cfg)
	if err != nil {
		return nil, err
	}
	c.stopBatches = producer.Close
	cfg.Source, cfg.LoopbackOperator = toolSource, true
	s := batchrun.New(batchrun.Config{Kafka: l.cfg, Admin: l.admin, Producer: producer, Source: toolSource, ReadOnly: o.batch == "", Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Sends: func(id string) bool { return id == o.batch }})
	cfg.Batches = s
	return s, nil
}

// runBatches starts the batches of a local console, and waits until they are read.
func (c *localConsole) runBatches(ctx context.Context, s *batchrun.Service) error {
	if s == nil {
		return nil
	}
	s.SetLook(c.console.Look)
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended, closeProducer := make(chan struct{}), c.stopBatches
	c.stopBatches = func() {
		cancel()
		<-ended
		closeProducer()
	}
	go func() {
		defer close(ended)
		_ = s.Run(running) // it returns none
	}()
	within, done := context.WithTimeout(ctx, stallTimeout)
	defer done()
	return c.source.(logSource).connectionLost(s.AwaitRead(within))
}
