package console

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// WorkflowView is a version of a workflow, and what its tasks are doing.
type WorkflowView struct {
	Workflow string                     `json:"workflow"`
	Version  int                        `json:"version"`
	Steps    []string                   `json:"steps"`
	Agents   []string                   `json:"agents"`
	Tasks    map[events.TaskState]int64 `json:"tasks"` // by state
}

type workflowList struct {
	Workflows         []WorkflowView `json:"workflows"`
	AsOf              []events.AsOf  `json:"as_of"`
	MissingPartitions []int32        `json:"missing_partitions"`
}

// workflows lists what was applied, and what tasks there are of. A version that has
// tasks is there though its definition isn't any more.
func (c *call) workflows() (any, error) {
	if err := c.knows(); err != nil {
		return nil, err
	}
	at, missing, err := c.elsewhere(c.r.Context())
	if err != nil {
		return nil, err
	}
	views, reflected := map[string]*WorkflowView{}, map[int32]int64{}
	of := func(name string, version int) *WorkflowView {
		key := name + "/" + strconv.Itoa(version)
		if views[key] == nil {
			views[key] = &WorkflowView{Workflow: name, Version: version, Steps: []string{}, Agents: []string{}, Tasks: map[events.TaskState]int64{}}
		}
		return views[key]
	}
	for _, w := range c.cfg.Cluster.Workflows() {
		v := of(w.Name, w.Version)
		v.Steps, v.Agents = w.Steps, w.Agents
	}
	err = c.eachCounts(func(p int32, counts projections.Counts, next int64) {
		reflected[p] = next
		for key, states := range counts.Workflows {
			name, version := cutVersion(key)
			add(of(name, version).Tasks, states)
		}
	})
	if err != nil {
		return nil, err
	}
	err = gather(c, at, func(l workflowList) {
		for _, w := range l.Workflows {
			add(of(w.Workflow, w.Version).Tasks, w.Tasks)
		}
		addAsOf(reflected, l.AsOf)
	})
	if err != nil {
		return nil, err
	}
	l := &workflowList{Workflows: []WorkflowView{}, AsOf: asOf(reflected), MissingPartitions: orEmpty(missing)}
	for _, v := range views {
		l.Workflows = append(l.Workflows, *v)
	}
	slices.SortFunc(l.Workflows, func(a, b WorkflowView) int {
		return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Version, b.Version))
	})
	return l, nil
}

// cutVersion is the inverse of name/version. A name may hold slashes.
func cutVersion(key string) (name string, version int) {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i] == '/' {
			version, _ = strconv.Atoi(key[i+1:]) // the audit wrote a number
			return key[:i], version
		}
	}
	return key, 0
}

func add(sum, more map[events.TaskState]int64) {
	for state, n := range more {
		sum[state] += n
	}
}

func addAsOf(reflected map[int32]int64, list []events.AsOf) {
	for _, at := range list {
		if next, err := strconv.ParseInt(at.Offset, 10, 64); err == nil {
			reflected[at.Partition] = next
		}
	}
}

func orEmpty(list []int32) []int32 {
	if list == nil {
		return []int32{}
	}
	return list
}

// eachCounts gives fn what is counted of each partition that is here.
func (c *call) eachCounts(fn func(p int32, counts projections.Counts, next int64)) error {
	own := c.cfg.Audit.Owned()
	if err := c.cfg.Audit.Fresh(c.r.Context(), own...); err != nil {
		return err
	}
	for _, p := range own {
		counts, next, err := c.cfg.Audit.Counts(p)
		if err != nil {
			return err
		}
		fn(p, counts, next)
	}
	return nil
}

// AgentView is an agent.
type AgentView struct {
	Agent      string `json:"agent"`
	Partitions int32  `json:"partitions"` // of its request topic
	Members    int    `json:"members"`    // processes that read its requests
	Lag        int64  `json:"lag"`        // requests that aren't finished, taken or not
	InFlight   int64  `json:"in_flight"`  // tasks of which it has an attempt, as the events have it
	// Circuit is closed, half-open or open; unknown of agents that run in another
	// process than the console.
	Circuit string `json:"circuit"`
}

type agentList struct {
	Agents            []AgentView   `json:"agents"`
	AsOf              []events.AsOf `json:"as_of"` // of in_flight
	MissingPartitions []int32       `json:"missing_partitions"`
}

func (c *call) agents() (any, error) {
	if err := c.knows(); err != nil {
		return nil, err
	}
	at, missing, err := c.elsewhere(c.r.Context())
	if err != nil {
		return nil, err
	}
	l := &agentList{MissingPartitions: orEmpty(missing)}
	if l.Agents, err = c.cfg.Cluster.Agents(c.r.Context()); err != nil {
		return nil, unavailable("the agents: %v", err)
	}
	reflected, inFlight := map[int32]int64{}, map[string]int64{}
	err = c.eachCounts(func(p int32, counts projections.Counts, next int64) {
		reflected[p] = next
		for agent, n := range counts.Agents {
			inFlight[agent] += n
		}
	})
	if err != nil {
		return nil, err
	}
	circuits := map[string]string{}
	err = gather(c, at, func(other agentList) {
		addAsOf(reflected, other.AsOf)
		for _, a := range other.Agents {
			inFlight[a.Agent] += a.InFlight
			if a.Circuit != circuitUnknown {
				circuits[a.Agent] = a.Circuit
			}
		}
	})
	for i := range l.Agents {
		a := &l.Agents[i]
		if a.InFlight = inFlight[a.Agent]; a.Circuit == circuitUnknown {
			a.Circuit = cmp.Or(circuits[a.Agent], circuitUnknown)
		}
	}
	l.AsOf = asOf(reflected)
	return l, err
}

// circuitUnknown is the circuit of an agent of another process.
const circuitUnknown = "unknown"

// PartitionView is a partition.
type PartitionView struct {
	Partition int32   `json:"partition"`
	Owner     *string `json:"owner"` // by the last claim
	Epoch     uint64  `json:"epoch"`
	Lag       int64   `json:"lag"`   // inputs that the scheduler hasn't consumed
	Tasks     int64   `json:"tasks"` // ever
	OpenTasks int64   `json:"open_tasks"`
	OldestDue *string `json:"oldest_due"` // the earliest timer that is armed
	// Restored is how much of the partition the audit has read, from 0 to 1.
	Restored float64     `json:"restored"`
	AsOf     events.AsOf `json:"as_of"`
	End      string      `json:"end"`     // where events of the partition end
	Console  string      `json:"console"` // the URL of the one that has it
}

type partitionList struct {
	Partitions        []PartitionView `json:"partitions"`
	MissingPartitions []int32         `json:"missing_partitions"`
}

func (c *call) partitions() (any, error) {
	if err := c.knows(); err != nil {
		return nil, err
	}
	at, missing, err := c.elsewhere(c.r.Context())
	if err != nil {
		return nil, err
	}
	lag, err := c.cfg.Cluster.Inboxes(c.r.Context())
	if err != nil {
		return nil, unavailable("the lag of the schedulers: %v", err)
	}
	l := &partitionList{Partitions: []PartitionView{}, MissingPartitions: orEmpty(missing)}
	progress := c.cfg.Audit.Progress()
	err = c.eachCounts(func(p int32, counts projections.Counts, next int64) {
		l.Partitions = append(l.Partitions, c.partition(p, counts, next, progress[p], lag[p]))
	})
	if err != nil {
		return nil, err
	}
	if err := gather(c, at, func(other partitionList) { l.Partitions = append(l.Partitions, other.Partitions...) }); err != nil {
		return nil, err
	}
	slices.SortFunc(l.Partitions, func(a, b PartitionView) int { return cmp.Compare(a.Partition, b.Partition) })
	return l, nil
}

func (c *Console) partition(p int32, counts projections.Counts, next int64, read Progress, lag int64) PartitionView {
	v := PartitionView{Partition: p, Epoch: counts.Epoch, Lag: lag, Restored: 1, End: strconv.FormatInt(max(read.End, next), 10),
		AsOf: events.AsOf{Partition: p, Offset: strconv.FormatInt(next, 10)}, OldestDue: instantText(counts.OldestDue), Console: c.cfg.URL}
	if counts.Owner != "" {
		v.Owner = &counts.Owner
	}
	for state, n := range counts.Tasks {
		v.Tasks += n
		if !state.Terminal() {
			v.OpenTasks += n
		}
	}
	if read.Behind && read.End > 0 {
		v.Restored = min(1, float64(read.Next)/float64(read.End))
	}
	return v
}

func instantText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(events.TimeLayout)
	return &s
}

// AlertView is an alert.
type AlertView struct {
	At        *string `json:"at"`
	Task      string  `json:"task,omitempty"`
	Seq       uint64  `json:"seq,omitempty"`
	Code      string  `json:"code"`
	Step      string  `json:"step,omitempty"`
	Message   string  `json:"message"`
	Partition int32   `json:"partition"`
	Offset    string  `json:"offset"`
}

// ViewAlert shows an alert that a record holds. One without an instant gets the
// record's.
func ViewAlert(a *events.Alert, r *events.Record) AlertView {
	if a.At.IsZero() {
		a.At = r.Time
	}
	return AlertView{At: instantText(a.At), Task: a.Task, Seq: a.Seq, Code: a.Code, Step: a.Step, Message: a.Message,
		Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10)}
}

type alertList struct {
	Alerts []AlertView `json:"alerts"`
	Left   int64       `json:"left_off"` // how many more there are since then
}

// sinceDefault is how far back alerts and dead letters are looked for.
const sinceDefault = "24h"

// newest keeps the newest of a list that is read in another order, in bounded
// memory.
type newest[T any] struct {
	limit int
	seen  int64
	list  []dated[T]
}

type dated[T any] struct {
	at    time.Time
	thing T
}

func (n *newest[T]) add(at time.Time, thing T) {
	n.seen++
	n.list = append(n.list, dated[T]{at, thing})
	if len(n.list) >= 2*n.limit {
		n.cut()
	}
}

func (n *newest[T]) cut() {
	slices.SortStableFunc(n.list, func(a, b dated[T]) int { return b.at.Compare(a.at) })
	n.list = n.list[:min(n.limit, len(n.list))]
}

func (n *newest[T]) all() (list []T, left int64) {
	n.cut()
	list = make([]T, len(n.list))
	for i := range n.list {
		list[i] = n.list[i].thing
	}
	return list, n.seen - int64(len(list))
}

// window reads since and limit.
func (c *call) window() (since time.Time, limit int, err error) {
	q := c.r.URL.Query()
	if since, err = parseBack("since", cmp.Or(q.Get("since"), sinceDefault), c.cfg.Now()); err != nil {
		return since, 0, badRequest("%v", err)
	}
	limit = pageDefault
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > pageMax {
			return since, 0, badRequest("limit %q: 1 to %d", printable(text), pageMax)
		}
	}
	return since, limit, nil
}

func (c *call) alerts() (any, error) {
	if err := c.knows("since", "limit"); err != nil {
		return nil, err
	}
	since, limit, err := c.window()
	if err != nil {
		return nil, err
	}
	found := newest[AlertView]{limit: limit}
	err = c.cfg.Log.Alerts(c.r.Context(), since, func(r *events.Record) {
		a, err := events.DecodeAlert(r)
		if err != nil {
			return // `waybill alerts` tells of what is none
		}
		v := ViewAlert(a, r)
		found.add(a.At, v)
	})
	if err != nil {
		return nil, unavailable("the alerts: %v", err)
	}
	list, left := found.all()
	return alertList{list, left}, nil
}

// DeadletterView is a record that could not be used. Value is the original, as far
// as it was kept: as text where it is UTF-8, else in base64, as the encoding says.
type DeadletterView struct {
	At        *string           `json:"at"`
	Reason    string            `json:"reason"`
	Detail    string            `json:"detail"`
	Origin    string            `json:"origin"` // topic/partition/offset
	Key       string            `json:"key"`
	Size      int64             `json:"size"` // of the original, in bytes
	SHA256    string            `json:"sha256"`
	Partition int32             `json:"partition"`
	Offset    string            `json:"offset"`
	Headers   map[string]string `json:"headers"`
	Encoding  string            `json:"encoding"` // utf8 or base64
	Value     string            `json:"value"`
}

type deadletterList struct {
	Deadletters []DeadletterView `json:"deadletters"`
	Left        int64            `json:"left_off"`
}

func (c *call) deadletters() (any, error) {
	if err := c.knows("since", "limit", "reason"); err != nil {
		return nil, err
	}
	since, limit, err := c.window()
	if err != nil {
		return nil, err
	}
	reason := c.r.URL.Query().Get("reason")
	if reason != "" && !slices.Contains(events.Reasons, events.Reason(reason)) {
		return nil, badRequest("reason %q: one of %v", printable(reason), events.Reasons)
	}
	found := newest[DeadletterView]{limit: limit}
	err = c.cfg.Log.Deadletters(c.r.Context(), since, func(r *events.Record) {
		if d := ViewDeadletter(r); reason == "" || d.Reason == reason {
			found.add(r.Time, d)
		}
	})
	if err != nil {
		return nil, unavailable("the dead letters: %v", err)
	}
	list, left := found.all()
	return deadletterList{list, left}, nil
}

// ViewDeadletter shows a record of the dead letters.
func ViewDeadletter(r *events.Record) DeadletterView {
	d := DeadletterView{At: instantText(r.Time), Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10), Headers: map[string]string{}}
	for _, h := range r.Headers {
		d.Headers[h.Key] = string(h.Value)
	}
	d.Reason, d.Detail, d.Origin, d.SHA256 = d.Headers[events.HeaderReason], d.Headers[events.HeaderDetail], d.Headers[events.HeaderOrigin], d.Headers[events.HeaderSHA256]
	d.Key, d.Size = string(r.Key), int64(len(r.Value))
	if n, err := strconv.ParseInt(d.Headers[events.HeaderSize], 10, 64); err == nil {
		d.Size = n // of all of it; the value may have been cut
	}
	d.Encoding, d.Value = "utf8", string(r.Value)
	if !utf8.Valid(r.Value) {
		d.Encoding, d.Value = "base64", base64.StdEncoding.EncodeToString(r.Value)
	}
	return d
}
