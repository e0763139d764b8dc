package projections

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

const (
	// MaxPastAlerts bounds the past alerts of a partition. Those of the oldest holds are deleted. Open alerts don't
	// count.
	MaxPastAlerts = 10_000
	// MaxAlertsCounted bounds the alerts of each kind and partition that a query counts.
	MaxAlertsCounted = 100_000
	// MaxAlertTextBytes bounds a stored code or message. Agents may send more; the event has all of it.
	MaxAlertTextBytes = 4 << 10
)

// maxPastAlerts is MaxPastAlerts; tests set less.
var maxPastAlerts int64 = MaxPastAlerts

// Alert describes a hold and how it ended. It is derived from the task's events alone.
type Alert struct {
	Task   string    `json:"task"`
	Seq    uint64    `json:"seq"` // of the event that held the task
	Offset int64     `json:"-"`   // of that event
	At     time.Time `json:"at"`
	// Code and Message are at most MaxAlertTextBytes of those of the event.
	Code    string `json:"code,omitempty"`
	Step    string `json:"step,omitempty"`
	Message string `json:"message"`
	// Group is the id of the error group of the hold.
	Group string `json:"group,omitempty"`
	// EndedAt is when the task continued or ended; zero: it is still held. EndedBy is the type of
	// the event that ended the hold.
	EndedAt time.Time `json:"ended_at,omitzero"`
	EndedBy string    `json:"ended_by,omitempty"`

	Partition int32 `json:"-"`
}

// Open reports whether the task is still held.
func (a *Alert) Open() bool { return a.EndedAt.IsZero() }

// holds are the changes of a row's holds since the last Save.
type holds struct {
	begun []Alert // the last may be open
	ended *Alert  // EndedAt and EndedBy of the alert that was open at the last Save
}

// recordHold records whether an event began or ended a hold. was is the state before the event; by is the event's type.
func (rs *taskRows) recordHold(r *taskRow, e *events.Event, was events.TaskState, offset int64, by string) {
	if f, ok := e.Fact.(*events.TaskHeld); ok {
		rs.holdChanges++
		a := events.AlertOfHold(e, f, r.summary.Ending, r.summary.CatchFailed(f.Error))
		r.group = rs.groups.addHold(r.summary, f.Error, e.At)
		r.getHolds().begun = append(r.holds.begun, Alert{Task: r.task, Seq: a.Seq, Offset: offset, At: a.At, Code: cutText(a.Code), Step: a.Step, Message: cutText(a.Message), Group: r.group})
		return
	}
	if was != events.StateError || r.summary.State == events.StateError {
		return
	}
	rs.holdChanges++
	rs.groups.end(r.group, r.summary.Version)
	r.group = ""
	h := r.getHolds()
	if n := len(h.begun); n > 0 {
		h.begun[n-1].EndedAt, h.begun[n-1].EndedBy = e.At, by
		return
	}
	h.ended = &Alert{EndedAt: e.At, EndedBy: by}
}

// cutText cuts a text to MaxAlertTextBytes, between characters.
func cutText(text string) string { return cutBytes(text, MaxAlertTextBytes) }

func (r *taskRow) getHolds() *holds {
	if r.holds == nil {
		r.holds = &holds{}
	}
	return r.holds
}

// appendAlertKey appends the key of an alert. Keys of newer holds come first.
func (k keyspace) appendAlertKey(dst []byte, kind byte, offset int64) []byte {
	return binary.BigEndian.AppendUint64(k.appendKey(dst, kind, ""), math.MaxInt64-uint64(offset))
}

// cutAlertKey returns the offset in the key of an alert.
func cutAlertKey(key []byte) (int64, error) {
	if len(key) != prefixBytes+8 {
		return 0, fmt.Errorf("key %x: not that of an alert", key)
	}
	return int64(math.MaxInt64 - binary.BigEndian.Uint64(key[prefixBytes:])), nil
}

// alertHeadBytes is the length of what precedes the JSON of a stored alert: the instants of its hold and of its end (0: it
// is open), in Unix ms.
const alertHeadBytes = 16

// encodeAlert returns the stored form of an alert.
func encodeAlert(a *Alert) []byte {
	ended := int64(0)
	if !a.Open() {
		ended = a.EndedAt.UnixMilli()
	}
	head := binary.BigEndian.AppendUint64(nil, uint64(a.At.UnixMilli()))
	return append(binary.BigEndian.AppendUint64(head, uint64(ended)), mustMarshal(a)...)
}

var errNoAlert = errors.New("not an alert")

func decodeAlert(data []byte) (a Alert, err error) {
	if len(data) < alertHeadBytes {
		return a, errNoAlert
	}
	return a, json.Unmarshal(data[alertHeadBytes:], &a)
}

// saveHolds writes the alerts of a row. It appends the offsets of ended ones to past.
func (t *Timelines) saveHolds(b batch, r *taskRow, past []int64) []int64 {
	h := r.holds
	if h == nil {
		return past
	}
	r.holds = nil
	if h.ended != nil {
		a := t.v.openAlert(r.task)
		if a == nil { // the event that began the hold wasn't folded
			return past
		}
		b.delete(t.v.keys.appendAlertKey(nil, kindAlert, a.Offset))
		b.delete(t.v.keys.key(kindHold, r.task))
		a.EndedAt, a.EndedBy = h.ended.EndedAt, h.ended.EndedBy
		h.begun = append(h.begun, *a)
	}
	for i := range h.begun {
		a := &h.begun[i]
		kind := byte(kindAlert)
		if a.Open() {
			b.set(t.v.keys.key(kindHold, r.task), binary.BigEndian.AppendUint64(nil, uint64(a.Offset)))
		} else {
			kind, past = kindPast, append(past, a.Offset)
		}
		b.set(t.v.keys.appendAlertKey(nil, kind, a.Offset), encodeAlert(a))
	}
	return past
}

// openAlert returns the saved open alert of a task; nil: there is none.
func (r reader) openAlert(task string) (a *Alert) {
	offset := int64(-1)
	r.get(kindHold, task, func(data []byte) error {
		if len(data) != 8 {
			return errNoAlert
		}
		offset = int64(binary.BigEndian.Uint64(data))
		return nil
	})
	if offset < 0 {
		return nil
	}
	rest := r.keys.appendAlertKey(nil, kindAlert, offset)[prefixBytes:]
	r.get(kindAlert, string(rest), func(data []byte) error {
		found, err := decodeAlert(data)
		found.Offset = offset
		a = &found
		return err
	})
	return a
}

// prune deletes the oldest past alerts above the bound. added are the offsets of those in this Save, which Pebble lacks
// yet. The result doesn't depend on when Saves happen.
func (t *Timelines) prune(b batch, added []int64) {
	tally := &t.rows.tally
	tally.PastAlerts += int64(len(added))
	if len(added) == 0 || tally.PastAlerts <= maxPastAlerts {
		return
	}
	slices.Sort(added)
	it := t.v.iterator(t.v.keys.bounds(kindPast))
	defer it.close()
	for ok := it.last(); tally.PastAlerts > maxPastAlerts; tally.PastAlerts-- {
		oldest := int64(math.MaxInt64)
		if ok {
			var err error
			if oldest, err = cutAlertKey(it.key()); err != nil {
				t.v.corrupt(kindPast, it.rest(), err)
			}
		}
		if len(added) > 0 && added[0] < oldest {
			oldest, added = added[0], added[1:]
		} else if ok {
			ok = it.prev()
		}
		b.delete(t.v.keys.appendAlertKey(nil, kindPast, oldest))
	}
}

// AlertQuery selects alerts.
type AlertQuery struct {
	OpenSince time.Time // open alerts of holds that began since; zero: all
	PastSince time.Time // alerts that ended since, whenever the hold began; zero: all
	OpenOnly  bool
	Limit     int
	After     *AlertPlace // alerts after this place in the list; nil: from the newest on
}

// AlertPlace is an alert's place in the list. The newest come first. Those of one instant are in the order of
// partitions, then the later event first.
type AlertPlace struct {
	At        time.Time
	Partition int32
	Offset    int64
}

// Place returns the alert's place in the list.
func (a *Alert) Place() AlertPlace { return AlertPlace{a.At, a.Partition, a.Offset} }

// Compare is negative if p comes before q.
func (p AlertPlace) Compare(q AlertPlace) int {
	return cmp.Or(q.At.Compare(p.At), cmp.Compare(p.Partition, q.Partition), cmp.Compare(q.Offset, p.Offset))
}

// isBefore reports whether an alert with this key and instant, in Unix ms, comes before After or at it.
func (q *AlertQuery) isBefore(partition int32, key []byte, at int64) (bool, error) {
	if q.After == nil || at < q.After.At.UnixMilli() {
		return false, nil
	}
	offset, err := cutAlertKey(key)
	return AlertPlace{time.UnixMilli(at), partition, offset}.Compare(*q.After) <= 0, err
}

// AlertList is the result of an AlertQuery.
type AlertList struct {
	Alerts []Alert
	Count  int64           // of the matching alerts after After, beyond Limit too; at most MaxAlertsCounted of each kind and partition
	AsOf   map[int32]int64 // partition -> the offset below which all of it is reflected
}

// Alerts returns the newest alerts of some partitions. It answers from what was saved,
// and may be called from several goroutines.
func (s *Store) Alerts(partitions []int32, q AlertQuery) (AlertList, error) {
	l := AlertList{AsOf: map[int32]int64{}}
	for _, p := range partitions {
		asOf, err := s.onSnapshot(ViewTimelines, p, func(r reader) {
			if r.alerts(kindAlert, q.OpenSince, &q, &l); !q.OpenOnly {
				r.alerts(kindPast, q.PastSince, &q, &l)
			}
		})
		if err != nil {
			return l, err
		}
		l.AsOf[p] = asOf.Next
		l.cut(q.Limit) // so that memory has at most Limit of all partitions, and Limit of one
	}
	return l, nil
}

// cut sorts the alerts and keeps the newest.
func (l *AlertList) cut(limit int) {
	slices.SortFunc(l.Alerts, func(a, b Alert) int { return a.Place().Compare(b.Place()) })
	if len(l.Alerts) > limit {
		clear(l.Alerts[limit:])
		l.Alerts = l.Alerts[:limit]
	}
}

// alerts adds the alerts of one kind, the newest first.
func (r reader) alerts(kind byte, since time.Time, q *AlertQuery, l *AlertList) {
	scan := alertScan{q: q, list: l, partition: r.keys.partition, past: kind == kindPast, least: math.MinInt64, passing: q.After != nil}
	if !since.IsZero() {
		scan.least = ceilMillis(since)
	}
	it := r.iterator(r.keys.bounds(kind))
	defer it.close()
	for ok := it.first(); ok && scan.n < MaxAlertsCounted; ok = it.next() {
		if scan.onlyCounts() {
			scan.n++
			continue
		}
		over, err := scan.add(it.key(), it.value())
		if err != nil {
			r.corrupt(kind, it.rest(), err)
		}
		if over {
			break
		}
	}
	l.Count += int64(scan.n)
}

// alertScan is a scan of the alerts of one kind of a partition.
type alertScan struct {
	q         *AlertQuery
	list      *AlertList
	partition int32
	past      bool  // least is about the end of an alert, else about the begin of its hold
	least     int64 // Unix ms; older alerts are left out
	passing   bool  // the scan hasn't passed After yet
	n         int   // alerts counted
}

// onlyCounts reports whether the remaining alerts are only counted. Then their values needn't be read, which takes most
// of the time.
func (a *alertScan) onlyCounts() bool {
	return a.n >= a.q.Limit && !a.passing && a.least == math.MinInt64
}

// add handles the next alert. over reports that it is too old, and so are all after it: those of open alerts are in the
// order of their holds, and instants in a partition never decrease. An earlier hold can have a later end.
func (a *alertScan) add(key, data []byte) (over bool, err error) {
	if len(data) < alertHeadBytes {
		return false, errNoAlert
	}
	at, ended := int64(binary.BigEndian.Uint64(data)), int64(binary.BigEndian.Uint64(data[8:]))
	if a.passing {
		if a.passing, err = a.q.isBefore(a.partition, key, at); a.passing || err != nil {
			return false, err
		}
	}
	switch {
	case a.past && ended < a.least:
		return false, nil
	case !a.past && at < a.least:
		return true, nil
	}
	if a.n++; a.n > a.q.Limit {
		return false, nil
	}
	found, err := decodeAlert(data)
	if err != nil {
		return false, err
	}
	found.Partition = a.partition
	found.Offset, err = cutAlertKey(key)
	a.list.Alerts = append(a.list.Alerts, found)
	return false, err
}
