package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/text"
)

// stallTimeout is how long a tool waits for brokers that have answered before. A failover of a partition's
// leader takes less.
const stallTimeout = 20 * time.Second

// tool holds the flags of every tool.
type tool struct {
	connection
	output
}

func (t *tool) flags(cmd *cobra.Command) {
	t.connection.flags(cmd)
	t.output.flags(cmd)
}

// logbook reads the log for tools. Each query reads the committed records that answer it.
type logbook struct {
	cfg        kafka.Config
	admin      *kafkaadmin.Admin
	reader     *logreader.Restorer
	partitions int32
	note       io.Writer       // output for notes and progress
	reported   map[string]bool // partitions for which warnOpenTransaction has warned
	corruption sync.Mutex
	corrupt    map[string]bool    // positions of corruption that were reported
	leaderless map[string][]int32 // skipped partitions without a leader, by topic
}

// open connects, and reads the partition count from the format record.
func (t *tool) open(cmd *cobra.Command) (*logbook, error) {
	cfg, err := t.kafka("waybill")
	if err != nil {
		return nil, err
	}
	l := &logbook{cfg: cfg, note: cmd.ErrOrStderr()}
	if l.admin, err = kafkaadmin.Open(cfg); err != nil {
		return nil, err
	}
	if l.reader, err = logreader.OpenRestorer(cfg, nil); err != nil {
		l.admin.Close()
		return nil, err
	}
	if err := l.readFormat(cmd.Context()); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *logbook) readFormat(ctx context.Context) error {
	if err := instance.CheckReachable(ctx, l.admin); err != nil {
		return err
	}
	return l.askBrokers(ctx, func(ctx context.Context) error {
		format, err := l.admin.Format(ctx)
		l.partitions = format.Partitions
		return err
	})
}

func (l *logbook) close() {
	l.reader.Close()
	l.admin.Close()
}

// partition returns the partition of a task.
func (l *logbook) partition(id string) int32 { return events.Partition([]byte(id), l.partitions) }

// askBrokers runs a request to brokers with stallTimeout. Its error says what to check.
func (l *logbook) askBrokers(ctx context.Context, ask func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	err := ask(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return l.brokersSilent(err)
	}
	return l.connectionLost(err)
}

// brokersUnavailable reports whether err means that brokers don't answer, perhaps for a moment.
func brokersUnavailable(err error) bool { return unreachable(err) || errors.Is(err, io.EOF) }

// connectionLost adds to the error of a lost connection what to do.
func (l *logbook) connectionLost(err error) error {
	_, leaderless := errors.AsType[*logreader.UnavailableError](err) // its message says what to do
	if !brokersUnavailable(err) || leaderless || errors.Is(err, instance.ErrUnreachable) {
		return err
	}
	return fmt.Errorf("%w: a broker of the cluster doesn't answer any more (%w); check that all are up (--brokers has %v), and try again", instance.ErrUnreachable, err, l.cfg.Brokers)
}

func (l *logbook) brokersSilent(err error) error {
	return fmt.Errorf("%w: the brokers at %v have been silent for %s (%w); check that they are up, and try again", instance.ErrUnreachable, l.cfg.Brokers, stallTimeout, err)
}

// ends returns the current end of each partition of a topic that has a leader.
func (l *logbook) ends(ctx context.Context, topic string) (ends map[int32]int64, err error) {
	err = l.askBrokers(ctx, func(ctx context.Context) error {
		ends, err = l.admin.KnownEndOffsets(ctx, topic)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("end of %s: %w", topic, err)
	}
	return ends, nil
}

// read passes the records of a topic to fn, shows a progress bar, and returns the offset in each partition at
// which the read ended. It warns if that isn't the end.
func (l *logbook) read(ctx context.Context, topic string, in logreader.Range, fn func(*events.Record) error) (map[int32]int64, error) {
	bar := newProgress(l.note, "reading "+topic)
	defer bar.end()
	return l.readBatches(ctx, topic, in, bar, func(rs []events.Record) error {
		for i := range rs {
			if err := fn(&rs[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// readBatches is read with a function that receives several records of one partition, and a progress bar.
func (l *logbook) readBatches(ctx context.Context, topic string, in logreader.Range, bar *progressBar, fn func([]events.Record) error) (map[int32]int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(stallTimeout, func() { cancel(instance.ErrUnreachable) })
	defer watchdog.Stop()
	var mu sync.Mutex // Blocked is called from several goroutines
	held := map[int32]int64{}
	if in.Blocked == nil {
		in.Blocked = func(p int32, next, _ int64) {
			mu.Lock()
			defer mu.Unlock()
			held[p] = next
		}
	}
	reached, err := l.reader.ReadAll(ctx, topic, in, func(rs []events.Record) error {
		watchdog.Reset(stallTimeout)
		return fn(rs)
	}, bar.set)
	if err != nil {
		if errors.Is(context.Cause(ctx), instance.ErrUnreachable) {
			return nil, l.brokersSilent(err)
		}
		return nil, fmt.Errorf("read %s: %w", topic, l.connectionLost(err))
	}
	l.warnOpenTransaction(topic, held)
	return reached, nil
}

// skipLeaderless returns the logreader.Range.Unavailable of a list that omits partitions without a leader. partialError
// reports them.
func (l *logbook) skipLeaderless(topic string) func(int32) {
	if l.leaderless == nil {
		l.leaderless = map[string][]int32{}
	}
	return func(p int32) { l.leaderless[topic] = append(l.leaderless[topic], p) }
}

// partialError returns an error if a list was made without some partitions, else nil.
func (l *logbook) partialError() error {
	for _, topic := range slices.Sorted(maps.Keys(l.leaderless)) {
		return fmt.Errorf("the answer is incomplete: %w", &logreader.UnavailableError{Topic: topic, Partitions: slices.Compact(slices.Sorted(slices.Values(l.leaderless[topic]))), Err: logreader.ErrNoLeader})
	}
	return nil
}

// warnOpenTransaction warns, once for each partition, that an open transaction hides its last records.
func (l *logbook) warnOpenTransaction(topic string, held map[int32]int64) {
	for _, p := range slices.Sorted(maps.Keys(held)) {
		at := fmt.Sprintf("%s/%d", topic, p)
		if l.reported[at] {
			continue
		}
		if l.reported == nil {
			l.reported = map[string]bool{}
		}
		l.reported[at] = true
		fmt.Fprintf(l.note, "waybill: %s was read only up to offset %d: an open transaction hides later records. "+
			"It times out after 10 s: run the command again then. If it stays open, `waybill doctor` says how to abort it\n", at, held[p])
	}
}

// readIncomplete reports whether a partition of a topic wasn't read to its end.
func (l *logbook) readIncomplete(topic string) bool {
	for at := range l.reported {
		if strings.HasPrefix(at, topic+"/") {
			return true
		}
	}
	return false
}

// ignoreHeld is the logreader.Range.Blocked of readers that read again later.
func ignoreHeld(int32, int64, int64) {}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// warnUnreadable prints for which tasks an event is unreadable, and why. It names the first few.
func warnUnreadable(note io.Writer, unreadable map[string]error, shown func(id string) bool) {
	const most = 5
	for i, id := range slices.Sorted(maps.Keys(unreadable)) {
		if i == most {
			fmt.Fprintf(note, "waybill: and %d more %s\n", len(unreadable)-most, text.Plural(len(unreadable)-most, "task"))
			break
		}
		as := "shown as of the last event before an unreadable one"
		if !shown(id) {
			as = "not shown: its first event is unreadable"
		}
		fmt.Fprintf(note, "waybill: task %q is %s (%s); if a newer release wrote it, use that release's tools\n", id, as, printable(unreadable[id].Error()))
	}
}

// sinceFlag is a --since flag: a duration back from now, or an instant.
type sinceFlag struct{ text string }

func (s *sinceFlag) flags(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&s.text, "since", "", what+": a duration back from now (10m), or an RFC 3339 time")
	commandLineOnly(cmd.Flags(), "since")
}

func (s *sinceFlag) instant(now time.Time) (time.Time, error) {
	return parseInstant("--since", s.text, now)
}

// parseInstant parses a duration back from now or an RFC 3339 instant; zero if the flag isn't set.
func parseInstant(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return time.Time{}, usage("%s %q: the duration must not be negative", flag, text)
		}
		return now.Add(-d), nil
	}
	t, err := events.ParseInstant(text)
	if err != nil {
		return time.Time{}, usage("%s %q: must be a duration back from now (10m, 24h) or an instant (2026-01-31T12:00:00Z)", flag, text)
	}
	return t, nil
}

// idArgument checks a task id that is given as the only argument.
func idArgument(args []string) (string, error) {
	if err := events.CheckTaskID(args[0]); err != nil {
		return "", exit(exitUsage, "task %w", err)
	}
	return args[0], nil
}

func notFound(id string) error {
	return exit(exitNotFound, "no task %q in the log; %s", id, whereToLook(id))
}

// whereToLook says how to find a task whose id wasn't found.
func whereToLook(said string) string {
	if strings.Contains(said, "…") { // shortened by idText
		return "tables shorten long ids; -o json shows them whole"
	}
	return "`waybill task list` lists tasks, `waybill deadletters` refused submissions"
}
