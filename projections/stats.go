package projections

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Stats are what happened in a time: to the tasks of a workflow, or to the requests of an agent (StatsQuery.OfAgents).
// Of an agent only Attempts, Failures and Latency are counted, each when the request ends. They can be merged without
// loss.
type Stats struct {
	Submitted, Processed, Undone, Cancelled int64 // tasks
	Held, HoldsEnded                        int64 // holds that began, and that ended
	// Attempts are the requests that were sent; of an agent: that ended by a reply or by their complete-by. Failures are
	// the attempts that failed or expired.
	Attempts, Failures int64
	// Latency is of the tasks that were processed, from their submission on; of an agent: of the requests that it
	// replied to.
	Latency Histogram
}

func (s *Stats) counts() [8]*int64 {
	return [8]*int64{&s.Submitted, &s.Processed, &s.Undone, &s.Cancelled, &s.Held, &s.HoldsEnded, &s.Attempts, &s.Failures}
}

// Merge adds other stats.
func (s *Stats) Merge(o *Stats) {
	more := o.counts()
	for i, n := range s.counts() {
		*n += *more[i]
	}
	s.Latency.Merge(&o.Latency)
}

func (s *Stats) encode() []byte {
	var data []byte
	for _, n := range s.counts() {
		data = binary.AppendUvarint(data, uint64(*n))
	}
	return s.Latency.appendTo(data)
}

var errNoStats = errors.New("not stats")

func decodeStats(data []byte) (*Stats, error) {
	s := &Stats{}
	for _, n := range s.counts() {
		v, size := binary.Uvarint(data)
		if size <= 0 {
			return s, errNoStats
		}
		*n, data = int64(v), data[size:]
	}
	var err error
	s.Latency, _, err = readHistogram(data)
	return s, err
}

// StatsLevel is a resolution of stats, and how long it is kept.
type StatsLevel struct {
	Step, Kept time.Duration
}

// StatsLevels are the levels, the finest first. Each step is a multiple of the one before.
var StatsLevels = [...]StatsLevel{
	{time.Minute, 24 * time.Hour},
	{10 * time.Minute, 7 * 24 * time.Hour},
	{time.Hour, 31 * 24 * time.Hour},
	{24 * time.Hour, 5 * 366 * 24 * time.Hour},
}

// oldest returns the start of the oldest bucket that is kept, in Unix seconds. latest is the instant of the latest event.
func (l StatsLevel) oldest(latest time.Time) int64 { return l.start(latest.Add(-l.Kept).Unix()) }

// start returns the start of the bucket of an instant, both in Unix seconds.
func (l StatsLevel) start(at int64) int64 { return at - at%int64(l.Step/time.Second) }

// bucket is a key of stats of one kind (kindStats, kindAgents).
type bucket struct {
	level int
	start int64 // Unix seconds
	name  string
}

func (k keyspace) statsKey(kind byte, b bucket) []byte {
	key := k.key(kind, string(rune('0'+b.level)))
	return append(binary.BigEndian.AppendUint64(key, uint64(b.start)), b.name...)
}

// cutStatsKey returns the bucket of a key.
func cutStatsKey(rest string) (b bucket, err error) {
	if len(rest) < 9 {
		return b, errNoStats
	}
	return bucket{int(rest[0] - '0'), int64(binary.BigEndian.Uint64([]byte(rest[1:9]))), rest[9:]}, nil
}

// statsFold are the stats of one kind since the last Save, in buckets of the finest level.
type statsFold struct {
	kind    byte // of their keys
	buckets map[bucket]*Stats
	last    bucket // of the event before, since the next one is mostly of the same
	stats   *Stats // of last
	pruned  int64  // the latest instant to which buckets were pruned, in Unix ms
}

func newStatsFold(kind byte) statsFold { return statsFold{kind: kind, buckets: map[bucket]*Stats{}} }

// in returns the stats of a bucket, to count in them.
func (f *statsFold) in(at time.Time, name string) *Stats {
	of := bucket{0, StatsLevels[0].start(at.Unix()), name}
	if f.stats == nil || of != f.last {
		if f.stats = f.buckets[of]; f.stats == nil {
			f.stats = &Stats{}
			f.buckets[of] = f.stats
		}
		f.last = of
	}
	return f.stats
}

// before is what stats need of a row before an event.
type before struct {
	state    events.TaskState // empty: the task is new
	failures int
}

func beforeOf(s *events.Summary) before {
	if s == nil {
		return before{}
	}
	return before{s.State, s.FailureCount}
}

// add counts an event. s is the row after it.
func (f *statsFold) add(e *events.Event, s *events.Summary, was before) {
	_, started := e.Fact.(*events.AttemptStarted)
	enters := was.state != s.State && !s.Item && (was.state == events.StateError || s.State != events.StateProcessing && s.State != events.StateUndoing)
	if !started && !enters && was.failures == s.FailureCount {
		return // a bucket without a count would be a series of nothing
	}
	stats := f.in(e.At, s.Workflow)
	stats.Failures += int64(s.FailureCount - was.failures)
	if started {
		stats.Attempts++
	}
	if enters {
		stats.enter(e, s, was.state)
	}
}

// addRequest counts the end of a request in the stats of its agent.
func (f *statsFold) addRequest(e *events.Event, c *events.StepChange) {
	if c.Agent == "" {
		return
	}
	stats := f.in(e.At, c.Agent)
	stats.Attempts++
	if c.Failed {
		stats.Failures++
	}
	if c.Replied {
		stats.Latency.Add(c.Answered.Milliseconds())
	}
}

// enter counts a change of a task's state.
func (s *Stats) enter(e *events.Event, row *events.Summary, was events.TaskState) {
	switch row.State {
	case events.StatePending:
		s.Submitted++
	case events.StateProcessed:
		s.Processed++
		s.Latency.Add(e.At.Sub(row.SubmittedAt).Milliseconds())
	case events.StateUndone:
		s.Undone++
	case events.StateCancelled:
		s.Cancelled++
	case events.StateError:
		s.Held++
	case events.StateProcessing, events.StateUndoing: // counted when they end
	}
	if was == events.StateError {
		s.HoldsEnded++
	}
}

// save adds what was counted to the buckets of all levels, and deletes those that are no longer kept. latest is the
// instant of the latest event.
func (f *statsFold) save(b batch, r reader, latest time.Time) {
	sums := map[bucket]*Stats{}
	for of, stats := range f.buckets {
		for i, level := range StatsLevels {
			of.level, of.start = i, level.start(of.start)
			if of.start < level.oldest(latest) {
				continue
			}
			if sums[of] == nil {
				sums[of] = &Stats{}
			}
			sums[of].Merge(stats)
		}
	}
	for of, stats := range sums {
		key := r.keys.statsKey(f.kind, of)
		r.get(f.kind, string(key[prefixBytes:]), func(data []byte) error {
			saved, err := decodeStats(data)
			stats.Merge(saved)
			return err
		})
		b.set(key, stats.encode())
	}
	clear(f.buckets)
	f.stats = nil
	for i, level := range StatsLevels {
		if oldest := level.oldest(latest); f.pruned == 0 || oldest > level.oldest(time.UnixMilli(f.pruned)) {
			b.deleteRange(r.keys.statsKey(f.kind, bucket{level: i}), r.keys.statsKey(f.kind, bucket{level: i, start: max(oldest, 0)}))
		}
	}
	f.pruned = latest.UnixMilli()
}

// StatsQuery selects stats.
type StatsQuery struct {
	From, To time.Time     // multiples of Step
	Step     time.Duration // a multiple of the finest level's
	OfAgents bool          // else of workflows
	Name     string        // of a workflow or an agent; empty: all
	ByName   bool          // else one series of all, with an empty name
}

// kind returns the kind of the keys of the stats.
func (q *StatsQuery) kind() byte {
	if q.OfAgents {
		return kindAgents
	}
	return kindStats
}

// level returns the coarsest level that has the query's step.
func (q *StatsQuery) level() (i int, err error) {
	for i = len(StatsLevels) - 1; i >= 0; i-- {
		if q.Step%StatsLevels[i].Step == 0 && q.Step > 0 {
			return i, nil
		}
	}
	return 0, fmt.Errorf("step %s: a multiple of %s", q.Step, StatsLevels[0].Step)
}

// StatsList is the result of a StatsQuery.
type StatsList struct {
	Series map[string][]Stats // by workflow or agent: a value for each step
	AsOf   map[int32]int64    // partition -> the offset below which all of it is reflected
}

// Stats returns the stats of some partitions. It answers from what was saved, and may be called from several goroutines.
func (s *Store) Stats(partitions []int32, q StatsQuery) (StatsList, error) {
	l := StatsList{Series: map[string][]Stats{}, AsOf: map[int32]int64{}}
	level, err := q.level()
	if err != nil {
		return l, err
	}
	steps := max(0, int64(q.To.Sub(q.From)/q.Step))
	for _, p := range partitions {
		asOf, err := s.onSnapshot(ViewTimelines, p, func(r reader) {
			from, to := bucket{level: level, start: q.From.Unix()}, bucket{level: level, start: q.From.Unix() + steps*int64(q.Step/time.Second)}
			it := r.iterator(r.keys.statsKey(q.kind(), from), r.keys.statsKey(q.kind(), to))
			defer it.close()
			for ok := it.first(); ok; ok = it.next() {
				of, err := cutStatsKey(it.rest())
				stats, derr := decodeStats(it.value())
				if err = errors.Join(err, derr); err != nil {
					r.corrupt(q.kind(), it.rest(), err)
				}
				l.add(&q, of, stats, steps)
			}
		})
		if err != nil {
			return l, err
		}
		l.AsOf[p] = asOf.Next
	}
	return l, nil
}

func (l *StatsList) add(q *StatsQuery, of bucket, stats *Stats, steps int64) {
	if q.Name != "" && of.name != q.Name {
		return
	}
	name := ""
	if q.ByName {
		name = of.name
	}
	if l.Series[name] == nil {
		l.Series[name] = make([]Stats, steps)
	}
	l.Series[name][(of.start-q.From.Unix())/int64(q.Step/time.Second)].Merge(stats)
}
