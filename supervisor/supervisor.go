package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/turns"
)

// Log is a consumer group's member on the events topic.
type Log interface {
	Feed
	Offsets
}

// Feed gives the records of the partitions that are assigned.
type Feed interface {
	// Assigned maps each partition to a number, never 0, that changes only
	// when it is assigned anew.
	Assigned() map[int32]uint64
	// Poll returns committed records of assigned partitions, each partition's
	// in order and without a gap from what Supervisor.Start said; (nil, nil)
	// after a bounded wait, or soon after Wake. An error is final. What it
	// returns is good until the next Poll.
	Poll(ctx context.Context) ([]events.Record, error)
	// Wake makes the Poll that waits, or else the next one, return at once. It
	// is called from any goroutine.
	Wake()
}

// Offsets says how far a partition was read.
type Offsets interface {
	// HighWatermark is the end of the partition's log when it was last
	// assigned; ok is false until it is known.
	HighWatermark(topic string, p int32) (offset int64, ok bool)
	// Position is the offset after everything that Poll has returned or passed
	// by, the markers of transactions included; ok is false as above.
	Position(topic string, p int32) (offset int64, ok bool)
	// Tail is where committed records ended when Poll last looked; a Position
	// below it is behind; ok is false as above.
	Tail(topic string, p int32) (offset int64, ok bool)
	// Commit stores positions as the group's offsets. They show lag to
	// operators; nothing is read from them. It is called beside Poll.
	Commit(ctx context.Context, positions map[int32]int64) error
}

// Deadlines is the projection of one partition of events: its armed timers, in
// the order in which they are due. The loop's goroutine calls it.
type Deadlines interface {
	Fold
	Index
}

// Fold is the stored side of Deadlines.
type Fold interface {
	// Apply folds a record. An event that can't be read is no error: it stops
	// its task, whose timers are then no longer due. An error means that the
	// partition can't go on, and ends the supervisor.
	Apply(r *events.Record) error
	// Next is the offset after the last record applied, At that record's
	// instant.
	Next() int64
	At() time.Time
	// ExpectLastEvent says that the last record applied comes once more, so that Apply sees whether the
	// log is the one that it was of.
	ExpectLastEvent() (from int64)
	// CheckReadTo says that the log was read up to an offset. The error says that the last record applied lies below it
	// and didn't come again: the partition can't go on with what it holds.
	CheckReadTo(offset int64) error
	// Save stores what was applied, with Next, as one.
	Save() error
	// LoadSnapshot replaces everything by the timers of a snapshot's open tasks, Next and At by
	// its own. An error that wraps events.ErrSnapshot says that nothing was changed.
	LoadSnapshot(r *events.SnapshotReader) error
	// Discard frees the memory, and drops what isn't saved.
	Discard()
}

// Index is the side of Deadlines by instants.
type Index interface {
	// Due lists timers that are due at now and not snoozed past it, the
	// earliest first, at most limit.
	Due(now time.Time, limit int) []events.Due
	// Snooze counts an ask and keeps the timer out of Due until the instant.
	// It does nothing if the timer has been disarmed or armed anew since.
	Snooze(d events.Due, until time.Time)
	// Earliest is the earliest instant at which Due returns something.
	Earliest() (time.Time, bool)
	// Armed counts the armed timers.
	Armed() int
}

// History reads a partition of events, or of snapshots, to the high watermark as
// of the call. It is called from several goroutines.
type History interface {
	Read(ctx context.Context, topic string, p int32, from int64, fn func([]events.Record) error) (next int64, err error)
	// ReadLast reads the last n offsets, or all if there are fewer.
	ReadLast(ctx context.Context, topic string, p int32, n int64, fn func([]events.Record) error) (all bool, err error)
}

// Outbox writes recoveries. It is called from several goroutines.
type Outbox interface {
	// Send returns when all records are acknowledged, or else an error: then
	// some may be written.
	Send(ctx context.Context, rs ...events.Record) error
}

// Clock is the broker's time as far as it is known here. Whoever reads the log
// corrects it, by the age of the records at its tail.
type Clock interface {
	Now() time.Time
}

// Listener observes a supervisor. It may be nil, and so may its fields. They
// are called from the loop's goroutine and may not block or call back.
type Listener struct {
	// Assigned and Lost: a partition came or went; Restored: it was read, in
	// took, to where it may be asked about.
	Assigned func(p int32)
	Lost     func(p int32)
	Restored func(p int32, took time.Duration)
	// Snapshot: an empty or late projection was taken from a snapshot, of so many armed timers.
	// SnapshotRefused: it can't be, and the log is read instead. Both are called from goroutines of the log's.
	Snapshot        func(p int32, timers int)
	SnapshotRefused func(p int32, why error)
	// Armed: the number of armed timers in a partition, each sweep interval.
	Armed func(p int32, timers int)
	// Asked: a recovery was written. Late: it was the first that was asked for
	// its timer, so long after the timer was due.
	Asked func(a events.Action)
	Late  func(late time.Duration)
	// SendFailed: a batch of recoveries was not, or not entirely, written; it
	// will be asked for again.
	SendFailed func(p int32, err error)
	// CommitFailed: the group's offsets are behind, and so is the lag shown.
	CommitFailed func(err error)
	// Poison: a policy calls for nothing that this build knows. Told each time
	// that the timer is looked at.
	Poison func(p int32, err error)
	// Skew: the local clock is off by more than WarnSkew; positive: behind.
	// Told at most once in WarnInterval.
	Skew func(skew time.Duration)
}

// Config is what a supervisor needs.
type Config struct {
	Namespace events.Namespace
	Source    string // ce_source of the recoveries
	// Open loads the projection of a partition. A partition is opened again
	// only after it was discarded.
	Open func(p int32) (Deadlines, error)
	// History has the snapshots that schedulers write: without it, an empty projection reads its
	// partition from the start.
	History History
	Outbox  Outbox
	Clock   Clock
	// SweepInterval is the longest sleep; zero: DefaultSweepInterval.
	SweepInterval time.Duration
	// Loop is marked by each turn, for who watches it too; nil: a loop of its own.
	Loop     *turns.Loop
	Listener *Listener
}

// The bounds of Config.SweepInterval.
const (
	MinSweepInterval = 10 * time.Millisecond
	MaxSweepInterval = time.Minute
)

// Validate lists everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Namespace == "" {
		fault("no namespace: the recoveries would go to no system's topic; give %q or the system's own", events.DefaultNamespace)
	}
	if c.Source == "" {
		fault("no source: a recovery must say who asks; give the instance's name")
	}
	if c.Open == nil || c.Outbox == nil || c.Clock == nil {
		fault("a way to open deadlines, an outbox and a clock are all needed")
	}
	if d := c.SweepInterval; d != 0 && (d < MinSweepInterval || d > MaxSweepInterval) {
		fault("sweep interval %v: give %v to %v", d, MinSweepInterval, MaxSweepInterval)
	}
	if len(faults) > 0 {
		return fmt.Errorf("supervisor: %w", errors.Join(faults...))
	}
	return nil
}

// Supervisor asks for recoveries in the partitions that its Log is assigned.
type Supervisor struct {
	cfg    Config
	listen Listener

	// mu guards what follows. The loop holds it except while it polls; the
	// only other taker is Start, which comes on a goroutine of the log's.
	mu      sync.Mutex
	held    map[int32]*partition
	opening map[int32]chan struct{} // closed when Start has opened it, or couldn't
	ended   bool                    // Run closes everything
	starts  sync.WaitGroup
	closing context.Context // ends with it
	end     context.CancelFunc

	latest      time.Time // of the corrected clock
	warnedAt    time.Time // local, of the last warning of skew
	countedAt   time.Time // local, when Listener.Armed was last told
	committedAt time.Time // local
	committed   map[int32]int64
	committing  bool

	turns *turns.Loop // what Run watches

	background sync.WaitGroup
	sends      chan sent
	commits    chan error
}

// sent is how the sending of a batch ended.
type sent struct {
	to   *partition
	asks []ask
	at   time.Time // corrected, when it was decided
	took time.Duration
	err  error
}

// sentBuffer is how many ended sends wait for the loop before their goroutines
// do.
const sentBuffer = 64

// New makes a supervisor that holds no partition yet.
func New(cfg Config) (*Supervisor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.SweepInterval == 0 {
		cfg.SweepInterval = DefaultSweepInterval
	}
	s := &Supervisor{cfg: cfg, held: map[int32]*partition{}, opening: map[int32]chan struct{}{}, committed: map[int32]int64{},
		sends: make(chan sent, sentBuffer), commits: make(chan error, 1), turns: cmp.Or(cfg.Loop, &turns.Loop{})}
	s.closing, s.end = context.WithCancel(context.Background())
	if cfg.Listener != nil {
		s.listen = *cfg.Listener
	}
	s.listen.fill()
	return s, nil
}

// fill puts a function that does nothing where there is none.
func (l *Listener) fill() {
	orNothing1(&l.Assigned)
	orNothing1(&l.Lost)
	orNothing2(&l.Restored)
	orNothing2(&l.Snapshot)
	orNothing2(&l.SnapshotRefused)
	orNothing2(&l.Armed)
	orNothing1(&l.Asked)
	orNothing1(&l.Late)
	orNothing2(&l.SendFailed)
	orNothing1(&l.CommitFailed)
	orNothing2(&l.Poison)
	orNothing1(&l.Skew)
}

func orNothing1[A any](f *func(A)) {
	if *f == nil {
		*f = func(A) {}
	}
}

func orNothing2[A, B any](f *func(A, B)) {
	if *f == nil {
		*f = func(A, B) {}
	}
}
