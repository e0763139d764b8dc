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
)

// stallWithin is how long a tool waits for brokers that have answered before
// and are silent now: longer than a fail-over takes.
const stallWithin = 20 * time.Second

// tool is the flags that every tool has.
type tool struct {
	connection
	output
}

func (t *tool) flags(cmd *cobra.Command) {
	t.connection.flags(cmd)
	t.output.flags(cmd)
}

// logbook is what a tool reads the log with: each query that no console answers
// reads the records that answer it, committed ones only.
type logbook struct {
	cfg        kafka.Config
	admin      *kafka.Admin
	reader     *kafka.Restorer
	partitions int32
	history    bool      // it was imported: nothing is written to it
	note       io.Writer // what isn't data
	told       map[string]bool
	damage     sync.Mutex
	damaged    map[string]bool    // what can't be read, that was told
	unled      map[string][]int32 // partitions without a leader that a list was made without, by topic
}

// open connects, and learns the partition count from the format record.
func (t *tool) open(cmd *cobra.Command) (*logbook, error) {
	cfg, err := t.kafka("waybill")
	if err != nil {
		return nil, err
	}
	l := &logbook{cfg: cfg, note: cmd.ErrOrStderr()}
	if l.admin, err = kafka.OpenAdmin(cfg); err != nil {
		return nil, err
	}
	if l.reader, err = kafka.OpenRestorer(cfg, nil); err != nil {
		l.admin.Close()
		return nil, err
	}
	if err := l.learn(cmd.Context()); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *logbook) learn(ctx context.Context) error {
	if err := instance.Reach(ctx, l.admin); err != nil {
		return err
	}
	return l.patiently(ctx, func(ctx context.Context) error {
		format, err := l.admin.Format(ctx)
		l.partitions, l.history = format.Partitions, format.History
		return err
	})
}

// writable refuses a namespace in which no role runs.
func (l *logbook) writable() error {
	if l.history {
		return exit(exitRefused, "the namespace %s holds what `waybill import` brought, for reading: nobody would take a command or a submission there", l.cfg.Namespace)
	}
	return nil
}

func (l *logbook) close() {
	l.reader.Close()
	l.admin.Close()
}

// partition is where a task lives.
func (l *logbook) partition(id string) int32 { return events.Partition([]byte(id), l.partitions) }

// patiently runs a question to the brokers, and says so if they are silent.
func (l *logbook) patiently(ctx context.Context, ask func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, stallWithin)
	defer cancel()
	err := ask(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return l.silent(err)
	}
	return l.lost(err)
}

// away reports whether an error means that brokers are away, perhaps for a moment.
func away(err error) bool { return unreachable(err) || errors.Is(err, io.EOF) }

// lost says what to do where a connection was lost.
func (l *logbook) lost(err error) error {
	_, unled := errors.AsType[*kafka.UnavailableError](err) // which says so itself
	if !away(err) || unled || errors.Is(err, instance.ErrUnreachable) {
		return err
	}
	return fmt.Errorf("%w: the brokers at %v don't answer any more (%w); check that they are up, and try again", instance.ErrUnreachable, l.cfg.Brokers, err)
}

func (l *logbook) silent(err error) error {
	return fmt.Errorf("%w: the brokers at %v have been silent for %s (%w); check that they are up, and try again", instance.ErrUnreachable, l.cfg.Brokers, stallWithin, err)
}

// ends is where each partition of a topic ends now, of those of which the brokers say it.
func (l *logbook) ends(ctx context.Context, topic string) (ends map[int32]int64, err error) {
	err = l.patiently(ctx, func(ctx context.Context) error {
		ends, err = l.admin.KnownEndOffsets(ctx, topic)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("end of %s: %w", topic, err)
	}
	return ends, nil
}

// place is where a reader is in a partition.
type place struct {
	next int64     // offset
	time time.Time // no record before next is younger
}

// read gives fn the records of a topic, with a progress bar, and returns where
// the read ended in each partition. Where that isn't the end, it says so.
func (l *logbook) read(ctx context.Context, topic string, in kafka.Range, fn func(*events.Record) error) (map[int32]place, error) {
	bar := newProgress(l.note, "reading "+topic)
	defer bar.end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(stallWithin, func() { cancel(instance.ErrUnreachable) })
	defer watchdog.Stop()
	var mu sync.Mutex // with Apart, fn is called from several goroutines
	last, held := map[int32]time.Time{}, map[int32]int64{}
	if in.Blocked == nil {
		in.Blocked = func(p int32, next, _ int64) {
			mu.Lock()
			defer mu.Unlock()
			held[p] = next
		}
	}
	reached, err := l.reader.ReadAll(ctx, topic, in, func(rs []events.Record) error {
		watchdog.Reset(stallWithin)
		youngest := time.Time{} // a fetch is of one partition
		for i := range rs {
			youngest = later(rs[i].Time, youngest)
			if err := fn(&rs[i]); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		last[rs[0].Partition] = later(youngest, last[rs[0].Partition])
		return nil
	}, bar.set)
	if err != nil {
		if errors.Is(context.Cause(ctx), instance.ErrUnreachable) {
			return nil, l.silent(err)
		}
		return nil, fmt.Errorf("read %s: %w", topic, l.lost(err))
	}
	l.tellHeld(topic, held)
	places := make(map[int32]place, len(reached))
	for p, next := range reached {
		places[p] = place{next, later(last[p], in.Since)}
	}
	return places, nil
}

// without is kafka.Range.Away of a list that is made of the partitions that can be read; partial says of
// which others.
func (l *logbook) without(topic string) func(int32) {
	if l.unled == nil {
		l.unled = map[string][]int32{}
	}
	return func(p int32) { l.unled[topic] = append(l.unled[topic], p) }
}

// partial is the error of a list that was made without some partitions; nil: it is whole.
func (l *logbook) partial() error {
	for _, topic := range slices.Sorted(maps.Keys(l.unled)) {
		return fmt.Errorf("what is in some partitions is missing: %w", &kafka.UnavailableError{Topic: topic, Partitions: slices.Compact(slices.Sorted(slices.Values(l.unled[topic]))), Err: kafka.ErrNoLeader})
	}
	return nil
}

// tellHeld says of partitions, of each once, that they couldn't be read to their ends.
func (l *logbook) tellHeld(topic string, held map[int32]int64) {
	for _, p := range slices.Sorted(maps.Keys(held)) {
		at := fmt.Sprintf("%s/%d", topic, p)
		if l.told[at] {
			continue
		}
		if l.told == nil {
			l.told = map[string]bool{}
		}
		l.told[at] = true
		fmt.Fprintf(l.note, "waybill: %s was read up to offset %d only: a transaction that is open holds back what follows. "+
			"It ends after 10 s by itself, ask again then; if it doesn't, `waybill doctor` says what to abort\n", at, held[p])
	}
}

// wasHeld reports whether a topic couldn't be read to its end.
func (l *logbook) wasHeld(topic string) bool {
	for at := range l.told {
		if strings.HasPrefix(at, topic+"/") {
			return true
		}
	}
	return false
}

// soon is kafka.Range.Held of who reads again anyway.
func soon(int32, int64, int64) {}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// folding makes tasks of events. A task whose history can't be read to its end
// is shown as of the last event that could, and said to be.
type folding struct {
	tasks  map[string]*events.Task
	owners map[int32]string
	// unreadable is, by task, the first event that can't be folded; alien counts records of no task that can't.
	unreadable map[string]error
	alien      int
}

func newFolding() *folding {
	return &folding{tasks: map[string]*events.Task{}, owners: map[int32]string{}, unreadable: map[string]error{}}
}

// add folds one record of the events topic; of wanted tasks only, if wanted is
// given.
func (f *folding) add(r *events.Record, wanted func(id string) bool) {
	id := string(r.Key)
	if id != "" && (wanted != nil && !wanted(id) || f.unreadable[id] != nil) {
		return
	}
	t, e, err := events.FoldRecord(f.tasks[id], r)
	switch {
	case err != nil && id == "":
		f.alien++
	case err != nil:
		f.unreadable[id] = err
	default:
		if claim, ok := e.Fact.(*events.PartitionClaimed); ok {
			f.owners[r.Partition] = claim.Owner
		} else {
			f.tasks[id] = t
		}
	}
}

// lost takes note of what can't be read of some tasks.
func (f *folding) lost(ids ...string) func(*kafka.DamagedError) {
	return func(d *kafka.DamagedError) {
		for _, id := range ids {
			if d.Of(id) && f.unreadable[id] == nil {
				f.unreadable[id] = d
			}
		}
	}
}

// leave drops the tasks that are left out.
func (f *folding) leave(left *incomplete) {
	for i := range left.tasks {
		delete(f.tasks, left.tasks[i].Task)
		delete(f.unreadable, left.tasks[i].Task)
	}
}

// warn says what could not be read.
func (f *folding) warn(note io.Writer) {
	warnUnreadable(note, f.unreadable, func(id string) bool { return f.tasks[id] != nil })
	if f.alien > 0 {
		fmt.Fprintf(note, "waybill: %d records of no task can't be read\n", f.alien)
	}
}

// warnUnreadable says of which tasks an event can't be used, and why: of each while they are few.
func warnUnreadable(note io.Writer, poison map[string]error, shown func(id string) bool) {
	const most = 5
	for i, id := range slices.Sorted(maps.Keys(poison)) {
		if i == most {
			fmt.Fprintf(note, "waybill: and %d more tasks likewise\n", len(poison)-most)
			break
		}
		as := "shown as it was before an event that can't be used"
		if !shown(id) {
			as = "not shown: its first event can't be used"
		}
		fmt.Fprintf(note, "waybill: task %q is %s (%s); if it is from a newer build, use that one's tools\n", id, as, printable(poison[id].Error()))
	}
}

// since is a --since flag: a duration back from now, or an instant.
type since struct{ text string }

func (s *since) flags(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&s.text, "since", "", what+": a duration back from now (10m), or an RFC 3339 time")
	narrow(cmd.Flags(), "since")
}

func (s *since) instant(now time.Time) (time.Time, error) { return instantOf("--since", s.text, now) }

// instantOf reads the instant of a flag: a duration back from now, or as in RFC 3339; zero: nothing is said.
func instantOf(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return time.Time{}, usage("%s %q: a duration back from now has no sign", flag, text)
		}
		return now.Add(-d), nil
	}
	t, err := events.ParseInstant(text)
	if err != nil {
		return time.Time{}, usage("%s %q: a duration back from now (10m, 24h) or an instant (2026-01-31T12:00:00Z)", flag, text)
	}
	return t, nil
}

// idArgument is the one argument of many tools: a task's id.
func idArgument(args []string) (string, error) {
	if err := events.CheckTaskID(args[0]); err != nil {
		return "", exit(exitUsage, "task %w", err)
	}
	return args[0], nil
}

func notFound(id string) error {
	return exit(exitNotFound, "no task %q in the log; %s", id, whereTasksAre(id))
}

// whereTasksAre says where to look for a task that isn't there, by what was said of it.
func whereTasksAre(said string) string {
	if strings.Contains(said, "…") { // of idText
		return "a table shows the beginning and the end of a long id, and -o json all of it"
	}
	return "`waybill task list` shows those that are, `waybill deadletters` what was refused"
}
