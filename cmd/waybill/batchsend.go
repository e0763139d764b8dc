package main

import (
	"context"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/logclient"
)

// batchReport tells a batch what came of a task.
type batchReport struct {
	task string
	tell func(*batch.Batch)
}

// batchSender does what a batch says: it sends commands and looks at tasks, each in a goroutine. Only the goroutine of
// run has the batch.
type batchSender struct {
	run     *batchRun
	log     *logbook
	write   logclient.WriteFunc
	reports chan batchReport
	looking map[string]bool // tasks that are being looked at
	slots   chan struct{}   // of concurrent looks
	open    sync.WaitGroup
}

// send runs a batch to its end. If ctx ends, it waits for the commands that are being sent.
func (r *batchRun) send(cmd *cobra.Command, b *batch.Batch, j *journal) error {
	l, err := r.o.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	producer, err := kafka.OpenProducer(l.cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	s := &batchSender{run: r, log: l, write: producer.SendOne, looking: map[string]bool{}, slots: make(chan struct{}, concurrentTaskQueries),
		reports: make(chan batchReport, batch.InFlightMax+batch.CanaryMax+batch.SampleMax)}
	ctx, cancel := context.WithCancel(cmd.Context())
	err = s.loop(ctx, b, j)
	cancel()
	s.open.Wait()
	return orInterrupted(cmd.Context(), err)
}

func (s *batchSender) loop(ctx context.Context, b *batch.Batch, j *journal) error {
	bar := newProgress(s.run.note, "commanding")
	defer bar.end()
	interrupted := ctx.Done()
	for {
		do := b.Next(time.Now())
		if do.Ended {
			return ctx.Err()
		}
		for i := range do.Send {
			s.open.Go(func() { s.command(ctx, &do.Send[i]) })
		}
		for _, task := range do.Look {
			if !s.looking[task] {
				s.looking[task] = true
				s.open.Go(func() { s.look(ctx, task) })
			}
		}
		timer := time.NewTimer(waitUntil(do.Until))
		select {
		case report := <-s.reports:
			report.tell(b)
			delete(s.looking, report.task)
			if err := j.write(b.Result(report.task)); err != nil {
				return err
			}
			bar.set(int64(len(j.written)), int64(len(j.head.Tasks)))
		case <-timer.C:
		case <-interrupted:
			b.Stop("interrupted")
			interrupted = nil
		}
		timer.Stop()
	}
}

// waitUntil returns the time to an instant; without one, a time that is longer than any report takes.
func waitUntil(at time.Time) time.Duration {
	if at.IsZero() {
		return time.Hour
	}
	return time.Until(at)
}

// command sends a command and reports its answer.
func (s *batchSender) command(ctx context.Context, x *events.Control) {
	within, cancel := context.WithTimeout(ctx, s.run.o.timeout)
	defer cancel()
	var a *events.Answer
	r, err := logclient.CommandRecord(s.log.cfg.Namespace, toolSource, x)
	if err == nil {
		log := &logclient.KafkaLog{Namespace: s.log.cfg.Namespace, Admin: s.log.admin, Reader: s.log.reader}
		a, _, err = logclient.SendCommand(within, log, s.log.cfg.Namespace, s.write, x, r)
	}
	why := ""
	if err != nil {
		why = err.Error()
	}
	s.reports <- batchReport{x.Task, func(b *batch.Batch) { b.Answered(time.Now(), x.Task, a, why) }}
}

// look reads a task as of the end of the log. A look that fails is tried again later.
func (s *batchSender) look(ctx context.Context, task string) {
	s.slots <- struct{}{}
	v, err := s.run.console.Task(ctx, task)
	<-s.slots
	s.reports <- batchReport{task, func(b *batch.Batch) {
		if err == nil {
			b.Observed(task, &v.TaskView)
		}
	}}
}
