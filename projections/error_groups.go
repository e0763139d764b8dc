package projections

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// An error group is all holds of one cause: of one workflow, step, kind of run and code, with one pattern of the message
// (error_pattern.go). A hold enters its group when it begins and leaves it when it ends, in the order of the events. So
// the groups are a fold, like the rows. Their number is bounded, since agents choose codes and messages.

const (
	// MaxErrorGroups bounds the error groups of a partition. At the bound a new group replaces the ended group that was
	// seen the longest ago. If no group has ended, the hold enters the group OtherErrors.
	MaxErrorGroups = 1000
	// OtherErrors is the id of the group of all holds that have none of their own.
	OtherErrors = "other"
	// TrendHours is the number of hours in the trend of a group.
	TrendHours = 24
	// maxGroupCodeBytes bounds the code of a group.
	maxGroupCodeBytes = 256
)

// maxErrorGroups is MaxErrorGroups; tests set less.
var maxErrorGroups = MaxErrorGroups

// ErrorGroup is an error group. All but ID, Held and the counts are empty in the group OtherErrors.
type ErrorGroup struct {
	ID       string      `json:"-"`
	Workflow string      `json:"workflow,omitempty"`
	Step     string      `json:"step,omitempty"` // empty: the error is the task's
	Kind     events.Kind `json:"kind,omitempty"` // empty if Step is
	Code     string      `json:"code,omitempty"`
	Pattern  string      `json:"pattern,omitempty"`
	Message  string      `json:"message,omitempty"` // of the latest hold, at most MaxAlertTextBytes
	// Held is the number of tasks that are held now, Versions those by version of the workflow. Holds is the number of
	// holds since First, also of those that have ended.
	Held     int64         `json:"held,omitempty"`
	Versions map[int]int64 `json:"versions,omitempty"`
	Holds    int64         `json:"holds"`
	First    time.Time     `json:"first"` // when the first hold began
	Last     time.Time     `json:"last"`  // when the latest hold began
	// Hours are the holds of the hours up to that of Last, at most TrendHours.
	Hours []int64 `json:"hours"`
}

// errorGroups are the error groups of a partition, all in memory.
type errorGroups struct {
	byID    map[string]*ErrorGroup
	changed map[string]bool // since the last Save, also removed ones
}

func newErrorGroups() errorGroups {
	return errorGroups{byID: map[string]*ErrorGroup{}, changed: map[string]bool{}}
}

// addHold adds a hold, and returns the id of its group. s is the row after the event, err its error; nil: it has none.
func (gs *errorGroups) addHold(s *events.Summary, err *events.Error, at time.Time) string {
	if err == nil {
		err = &events.Error{}
	}
	of := ErrorGroup{Workflow: s.Workflow, Step: err.Step, Kind: s.KindInError(err.Step), Code: cutBytes(err.Code, maxGroupCodeBytes),
		Pattern: messagePattern(err.Message, s.ID), Holds: 1, First: at, Last: at, Hours: []int64{1}}
	of.ID = fingerprint(of.Workflow, of.Step, string(of.Kind), of.Code, of.Pattern)
	g := gs.byID[of.ID]
	if g == nil {
		g = gs.add(of)
	} else {
		g.merge(&of)
	}
	if g.ID != OtherErrors {
		g.Message = strings.Clone(cutText(err.Message)) // the event's memory is reused
	}
	g.Held++
	if g.Versions == nil {
		g.Versions = map[int]int64{}
	}
	g.Versions[s.Version]++
	gs.changed[g.ID] = true
	return g.ID
}

// add adds a new group with one hold. If there is no room for it, the hold enters OtherErrors, which is returned.
func (gs *errorGroups) add(of ErrorGroup) *ErrorGroup {
	if len(gs.byID) >= maxErrorGroups && !gs.evict() {
		of = ErrorGroup{ID: OtherErrors, Holds: 1, First: of.First, Last: of.Last, Hours: of.Hours}
		if other := gs.byID[OtherErrors]; other != nil {
			other.merge(&of)
			return other
		}
	}
	of.Step, of.Code = strings.Clone(of.Step), strings.Clone(of.Code)
	gs.byID[of.ID] = &of
	return &of
}

// evict removes the ended group that was seen the longest ago. ok is false if no group has ended.
func (gs *errorGroups) evict() (ok bool) {
	var oldest *ErrorGroup
	for _, g := range gs.byID {
		if g.Held == 0 && (oldest == nil || cmp.Or(g.Last.Compare(oldest.Last), cmp.Compare(g.ID, oldest.ID)) < 0) {
			oldest = g
		}
	}
	if oldest == nil {
		return false
	}
	delete(gs.byID, oldest.ID)
	gs.changed[oldest.ID] = true
	return true
}

// end removes a task of a version from the held ones of its group.
func (gs *errorGroups) end(id string, version int) {
	g := gs.byID[id]
	if g == nil {
		return // the event that began the hold wasn't folded
	}
	g.Held--
	if g.Versions[version]--; g.Versions[version] == 0 {
		delete(g.Versions, version)
	}
	gs.changed[id] = true
}

// migrate counts a held task of a group as one of another version.
func (gs *errorGroups) migrate(id string, from, to int) {
	if g := gs.byID[id]; g != nil {
		gs.end(id, from)
		g.Held++
		g.Versions[to]++
	}
}

// merge adds the holds of another part of the group.
func (g *ErrorGroup) merge(o *ErrorGroup) {
	g.Holds += o.Holds
	g.Held += o.Held
	for v, n := range o.Versions {
		if g.Versions == nil {
			g.Versions = map[int]int64{}
		}
		g.Versions[v] += n
	}
	last := max(g.lastHour(), o.lastHour())
	hours := g.Trend(last)
	for i, n := range o.Trend(last) {
		hours[i] += n
	}
	g.Hours = slices.Clone(trimZeros(hours))
	if o.First.Before(g.First) {
		g.First = o.First
	}
	if !o.Last.Before(g.Last) {
		g.Last, g.Message = o.Last, o.Message
	}
}

// trimZeros removes the zeros at the beginning.
func trimZeros(counts []int64) []int64 {
	i := slices.IndexFunc(counts, func(n int64) bool { return n != 0 })
	return counts[max(i, 0):]
}

// hourOf returns the number of an instant's hour since 1970.
func hourOf(at time.Time) int64 { return at.Unix() / int64(time.Hour/time.Second) }

func (g *ErrorGroup) lastHour() int64 { return hourOf(g.Last) }

// Trend returns the holds by hour, of TrendHours up to an hour since 1970.
func (g *ErrorGroup) Trend(last int64) []int64 {
	hours := make([]int64, TrendHours)
	for i, n := range g.Hours {
		hour := g.lastHour() - int64(len(g.Hours)-1-i)
		if at := TrendHours - 1 - (last - hour); at >= 0 && at < TrendHours {
			hours[at] += n
		}
	}
	return hours
}

// load reads the groups.
func (gs *errorGroups) load(r reader) {
	r.each(kindGroup, func(id string, data []byte) error {
		g := &ErrorGroup{ID: id}
		gs.byID[id] = g
		return json.Unmarshal(data, g)
	})
}

// save writes the groups that changed.
func (gs *errorGroups) save(b batch, keys keyspace) {
	for id := range gs.changed {
		key := keys.key(kindGroup, id)
		if g := gs.byID[id]; g != nil {
			b.set(key, mustMarshal(g))
		} else {
			b.delete(key)
		}
	}
	clear(gs.changed)
}

// groupOf returns the saved error group of a task; empty: it isn't held.
func (r reader) groupOf(s *events.Summary) string {
	if s.State != events.StateError {
		return ""
	}
	a := r.openAlert(s.ID)
	if a == nil {
		return ""
	}
	return a.Group
}

// ErrorGroupQuery selects error groups.
type ErrorGroupQuery struct {
	Workflow string // empty: all
	Ended    bool   // also those that hold no task
}

// ErrorGroupList is the result of an ErrorGroupQuery.
type ErrorGroupList struct {
	Groups []ErrorGroup    // those with the most held tasks first, then the latest
	Held   int64           // held tasks of the workflow, or of all
	AsOf   map[int32]int64 // partition -> the offset below which all of it is reflected
}

// ErrorGroups returns the error groups of some partitions. It answers from what was saved, and may be called from
// several goroutines.
func (s *Store) ErrorGroups(partitions []int32, q ErrorGroupQuery) (ErrorGroupList, error) {
	l := ErrorGroupList{AsOf: map[int32]int64{}}
	all := map[string]*ErrorGroup{}
	for _, p := range partitions {
		asOf, err := s.onSnapshot(ViewTimelines, p, func(r reader) {
			l.Held += r.heldOf(q.Workflow)
			gs := newErrorGroups()
			gs.load(r)
			for id, g := range gs.byID {
				switch {
				case q.Workflow != "" && g.Workflow != q.Workflow:
				case all[id] != nil:
					all[id].merge(g)
				default:
					all[id] = g
				}
			}
		})
		if err != nil {
			return l, err
		}
		l.AsOf[p] = asOf.Next
	}
	for _, g := range all {
		if g.Held > 0 || q.Ended {
			l.Groups = append(l.Groups, *g)
		}
	}
	slices.SortFunc(l.Groups, func(a, b ErrorGroup) int {
		return cmp.Or(cmp.Compare(b.Held, a.Held), b.Last.Compare(a.Last), cmp.Compare(a.ID, b.ID))
	})
	return l, nil
}

// heldOf returns the number of held tasks of a workflow; of an empty one: of all.
func (r reader) heldOf(workflow string) (held int64) {
	t := r.tally()
	for key := range maps.Keys(t.Workflows) {
		if name, _, ok := cutWorkflowKey(key); workflow == "" || ok && name == workflow {
			held += t.Workflows[key][events.StateError]
		}
	}
	return held
}
