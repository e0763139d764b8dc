package console

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/projections"
)

const (
	groupsDefault = 50
	groupsMax     = 200
	groupsSampled = 30 // a sample takes a list of the group's tasks: 200 of them took 80 ms, and 240 ms at p99
	groupSample   = 5  // ids of a group's tasks
)

// groupLimit is the most groups in an answer.
type groupLimit int

var _ = addParameter[groupLimit](sizeSchema(groupsDefault, groupsMax))

func (n *groupLimit) UnmarshalText(text []byte) error { return parseSize((*int)(n), text, groupsMax) }

type errorGroupsRequest struct {
	Workflow string     `query:"workflow" jsonschema:"The name of a workflow. Absent: all."`
	Limit    groupLimit `query:"limit" jsonschema:"The maximum number of groups."`
	Ended    bool       `query:"ended" jsonschema:"true: also groups that hold no task any more."`
	listRequest
}

// errorGroups lists what holds tasks.
func (c *call) errorGroups(in *errorGroupsRequest) (*consoleapi.ErrorGroupList, error) {
	progress, leaderless, err := c.awaitOffsets(c.r.Context(), in.MinOffset)
	if err != nil {
		return nil, err
	}
	ps := startedPartitions(progress)
	found, err := c.cfg.Index.ErrorGroups(ps, projections.ErrorGroupQuery{Workflow: in.Workflow, Ended: in.Ended})
	if err != nil {
		return nil, err
	}
	shown := found.Groups[:min(len(found.Groups), cmp.Or(int(in.Limit), groupsDefault))]
	l := &consoleapi.ErrorGroupList{Groups: make([]consoleapi.ErrorGroup, len(shown)), Held: found.Held, Left: len(found.Groups) - len(shown), AsOf: reflectedOffsets(found.AsOf)}
	now := c.cfg.Now()
	for i := range shown {
		l.Groups[i] = viewErrorGroup(&shown[i], now)
		l.Groups[i].Sample = []string{}
		if i < groupsSampled {
			if l.Groups[i].Sample, err = c.sampleGroup(ps, &shown[i]); err != nil {
				return nil, err
			}
		}
	}
	l.Incomplete, err = c.incompletePartitions(progress, leaderless)
	return l, err
}

// sampleGroup returns the ids of some held tasks of a group.
func (c *call) sampleGroup(ps []int32, g *projections.ErrorGroup) ([]string, error) {
	ids := []string{}
	if g.Held == 0 {
		return ids, nil
	}
	page, err := c.cfg.Index.List(c.r.Context(), ps, projections.Filter{ErrorGroup: g.ID}, projections.Cursor{}, groupSample)
	for i := range page.Tasks {
		ids = append(ids, page.Tasks[i].ID)
	}
	return ids, err
}

// viewErrorGroup converts a group. Its trend ends with the hour of now.
func viewErrorGroup(g *projections.ErrorGroup, now time.Time) consoleapi.ErrorGroup {
	last := max(now.Unix(), g.Last.Unix()) / int64(time.Hour/time.Second)
	from := time.Unix((last+1-projections.TrendHours)*int64(time.Hour/time.Second), 0)
	v := consoleapi.ErrorGroup{Group: g.ID, Other: g.ID == projections.OtherErrors, Workflow: g.Workflow, Step: g.Step, Kind: string(g.Kind), Code: g.Code,
		Pattern: g.Pattern, Message: g.Message, Held: g.Held, Versions: []consoleapi.VersionHeld{}, Holds: g.Holds,
		FirstSeen: events.InstantText(g.First), LastSeen: events.InstantText(g.Last),
		Trend: consoleapi.Trend{From: events.InstantText(from), StepMS: time.Hour.Milliseconds(), Holds: g.Trend(last)}}
	for _, version := range slices.Sorted(maps.Keys(g.Versions)) {
		v.Versions = append(v.Versions, consoleapi.VersionHeld{Version: version, Held: g.Versions[version]})
	}
	return v
}
