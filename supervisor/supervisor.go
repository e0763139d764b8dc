package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/listener"
	"github.com/waybill-run/waybill/internal/watchdog"
)

// Client is a Kafka client: a member of the supervisor group on the events topic.
type Client interface {
	Feed
	Offsets
}

// Feed returns the records of the assigned partitions.
type Feed interface {
	// Assigned maps each partition to a number, never 0, that changes only when the partition is assigned again.
	Assigned() map[int32]uint64
	// Poll returns committed records of assigned partitions: for each partition in order, without a gap, from the
	// offset of Supervisor.Start. It returns (nil, nil) after a bounded wait, or soon after Wake. An error is final.
	// The records are valid until the next Poll.
	Poll(ctx context.Context) ([]events.Record, error)
	// Wake makes the current or the next Poll return at once. Any goroutine may call it.
	Wake()
}

// Offsets are how far a partition was read.
type Offsets interface {
	// HighWatermark is the end of the partition's log at its last assignment; ok is false while unknown.
	HighWatermark(topic string, p int32) (offset int64, ok bool)
	// Position is the offset after everything that Poll has returned or skipped, including the end markers of
	// transactions; ok is false while unknown.
	Position(topic string, p int32) (offset int64, ok bool)
	// Tail is the end of the committed records at the last Poll. A lower Position is behind; ok is false while
	// unknown.
	Tail(topic string, p int32) (offset int64, ok bool)
	// Commit commits positions as the group's offsets. They only show the lag. It is called concurrently with Poll.
	Commit(ctx context.Context, positions map[int32]int64) error
}

// Deadlines is the projection of one partition of events: its armed timers, ordered by due time. The loop's goroutine
// calls it.
type Deadlines interface {
	Fold
	Index
}

// Fold is the stored part of Deadlines.
type Fold interface {
	// Apply folds a record. An unreadable event isn't an error: it stops its task, whose timers are then never due.
	// An error means that the partition can't continue; it ends the supervisor.
	Apply(r *events.Record) error
	// Next is the offset after the last applied record, At its time.
	Next() int64
	At() time.Time
	// ExpectLastEvent announces that the last applied record is applied again, so that Apply detects another log.
	ExpectLastEvent() (from int64)
	// CheckReadTo says that the log was read up to an offset. It fails if the last applied record is below it and wasn't
	// read again: the partition can't continue with its state.
	CheckReadTo(offset int64) error
	// Save stores the applied state and Next atomically. A failing disk ends the process.
	Save()
	// LoadSnapshot replaces the content with the timers of a snapshot's open tasks, and its Next and At. An error
	// that wraps events.ErrSnapshot means that nothing was changed.
	LoadSnapshot(r *events.SnapshotReader) error
	// Discard frees the memory without saving.
	Discard()
}

// Index is the part of Deadlines that is ordered by time.
type Index interface {
	// Due lists at most limit timers that are due and not snoozed at now, the earliest first.
	Due(now time.Time, limit int) []events.Due
	// Snooze counts an ask and removes the timer from Due until the instant. It does nothing if the timer was
	// disarmed or armed again meanwhile.
	Snooze(d events.Due, until time.Time)
	// Earliest is the earliest instant at which Due returns a timer.
	Earliest() (time.Time, bool)
	// Armed counts the armed timers.
	Armed() int
	// ForgetDue is from when on ids of ended tasks may be forgotten; false: none may be.
	ForgetDue() (time.Time, bool)
}

// History reads a partition of events, or of snapshots, to the high watermark at the call. It is called from several
// goroutines.
type History interface {
	Read(ctx context.Context, topic string, p int32, from int64, fn func([]events.Record) error) (next int64, err error)
	// ReadLast reads the last n offsets, or all if there are fewer.
	ReadLast(ctx context.Context, topic string, p int32, n int64, fn func([]events.Record) error) (all bool, err error)
}

// Outbox writes recoveries. It is called from several goroutines.
type Outbox interface {
	// Send returns when all records are acknowledged. After an error some may be written.
	Send(ctx context.Context, rs ...events.Record) error
}

// Clock is the estimated broker time. The reader of the log corrects it by the age of the newest records.
type Clock interface {
	Now() time.Time
}

// Listener observes a supervisor. It may be nil, and so may its fields. The loop's goroutine calls the functions,
// which may not block or call back.
type Listener struct {
	// Assigned and Lost: a partition was assigned or reassigned. Restored: it was read to the high watermark within
	// took, and may ask.
	Assigned func(p int32)
	Lost     func(p int32)
	Restored func(p int32, took time.Duration)
	// Snapshot: the timers of an empty or late projection were taken from a snapshot. SnapshotRefused: the snapshot
	// can't be used, and the log is read instead. Both are called from the client's goroutines.
	Snapshot        func(p int32, timers int)
	SnapshotRefused func(p int32, why error)
	// Armed is the number of armed timers of a partition, each sweep interval.
	Armed func(p int32, timers int)
	// Asked: a recovery was written. Late: it was the first for its timer, this long after the due time.
	Asked func(a events.Action)
	Late  func(late time.Duration)
	// SendFailed: a batch of recoveries was not completely written. It is asked for again.
	SendFailed func(p int32, err error)
	// CommitFailed: the group's offsets are stale, and so is the lag that they show.
	CommitFailed func(err error)
	// Unreadable: a policy calls for an action that this build doesn't know. It is reported at each ask.
	Unreadable func(p int32, err error)
	// Skew: the local clock is off by more than WarnSkew; positive: behind. It is reported at most once per
	// WarnEvery.
	Skew func(skew time.Duration)
}

// Config is what a supervisor needs.
type Config struct {
	Namespace events.Namespace
	Source    string // ce_source of the recoveries
	// Open loads the projection of a partition. A partition is opened again only after Discard.
	Open func(p int32) (Deadlines, error)
	// History reads the snapshots of schedulers. Without it, an empty projection reads its partition from the start.
	History History
	Outbox  Outbox
	Clock   Clock
	// SweepInterval is the longest sleep of the loop; zero: DefaultSweepInterval.
	SweepInterval time.Duration
	// Loop is marked by each iteration, for other watchers; nil: a Loop of its own.
	Loop     *watchdog.Loop
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
		fault("no namespace: set %q or the namespace of the system", events.DefaultNamespace)
	}
	if c.Source == "" {
		fault("no source: set the name of the instance, which recoveries carry")
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

// Supervisor asks for recoveries in the partitions that its Client is assigned.
type Supervisor struct {
	cfg      Config
	listener *Listener

	// mu guards the fields below. The loop holds it except during a poll. The only other user is Start, on a
	// goroutine of the client.
	mu            sync.Mutex
	partitions    map[int32]*partition
	openings      map[int32]chan struct{} // closed when Start has opened it, or failed
	ended         bool                    // Run is closing everything
	starts        sync.WaitGroup
	closing       context.Context // ends when Run closes everything
	cancelClosing context.CancelFunc

	latestNow        time.Time // last reading of Clock
	warnedAt         time.Time // local time of the last report of skew
	countedAt        time.Time // local time of the last report of armed timers
	committedAt      time.Time // local
	committedOffsets map[int32]int64
	committing       bool

	watchdog *watchdog.Loop // what Run watches

	background   sync.WaitGroup
	endedSends   chan batch
	endedCommits chan error
}

// batch is one send of recoveries.
type batch struct {
	to         *partition
	recoveries []timerRecovery
	// forget: it asks to forget ids, too.
	forget bool
	at     time.Time // corrected time of the decision
	took   time.Duration
	err    error
}

// endedSendsMax is how many ended sends the loop may still have to handle; further senders block.
const endedSendsMax = 64

// New returns a supervisor without partitions.
func New(cfg Config) (*Supervisor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.SweepInterval == 0 {
		cfg.SweepInterval = DefaultSweepInterval
	}
	s := &Supervisor{cfg: cfg, partitions: map[int32]*partition{}, openings: map[int32]chan struct{}{}, committedOffsets: map[int32]int64{},
		endedSends: make(chan batch, endedSendsMax), endedCommits: make(chan error, 1), watchdog: cmp.Or(cfg.Loop, &watchdog.Loop{})}
	s.closing, s.cancelClosing = context.WithCancel(context.Background())
	s.listener = listener.Complete(cfg.Listener)
	return s, nil
}
