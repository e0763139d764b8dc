package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// State is one thing that a build made of a log, as a line of JSON: a partition's state, a task, or
// the result of a record of an inbox. Only one of the three groups of fields is set.
type State struct {
	// Of is the subject of the line and its key, as in "partition 3", "task o-1", "input
	// tasks/3/17".
	Of string `json:"of"`

	// Stored is the stored form of a task or of a partition's state; View is
	// what a query shows of the task.
	Stored json.RawMessage  `json:"stored,omitempty"`
	View   *events.TaskView `json:"view,omitempty"`

	// Task is the task of the input. Refused is the reason why the record can't be used.
	Task    string `json:"task,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// Fold computes the states of a log: the records of one namespace, in the order of offsets within a
// partition. An event that can't be read or folded is an error.
func Fold(records []events.Record, ns events.Namespace) ([]State, error) {
	f := folded{parts: map[int32]*part{}}
	inboxes := map[string]events.Inbox{}
	for i := range events.Inboxes {
		inboxes[ns.Inbox(i)] = i
	}
	for i := range records {
		r := &records[i]
		if inbox, ok := inboxes[r.Topic]; ok {
			f.input(inbox, r)
		} else if r.Topic == ns.Events() {
			if err := f.event(r); err != nil {
				return nil, fmt.Errorf("%s/%d/%d: %w", r.Topic, r.Partition, r.Offset, err)
			}
		}
	}
	return f.states(), nil
}

type folded struct {
	parts  map[int32]*part
	inputs []State
}

type part struct {
	state events.PartitionState
	next  int64
	tasks map[string]*events.Fold
}

func (f *folded) input(inbox events.Inbox, r *events.Record) {
	s := State{Of: fmt.Sprintf("input %s/%d/%d", inbox, r.Partition, r.Offset)}
	task, _, err := events.DecodeInput(inbox, r)
	s.Task = task
	var unusable *events.Unusable
	if errors.As(err, &unusable) {
		s.Refused = string(unusable.Reason)
	} else if err != nil {
		s.Refused = err.Error()
	}
	f.inputs = append(f.inputs, s)
}

func (f *folded) event(r *events.Record) error {
	p := f.parts[r.Partition]
	if p == nil {
		p = &part{tasks: map[string]*events.Fold{}}
		f.parts[r.Partition] = p
	}
	e, err := events.ReadEvent(r)
	if err != nil {
		return err
	}
	if err := p.state.Evolve(e); err != nil {
		return err
	}
	p.next = r.Offset + 1
	if e.Task == "" {
		return nil
	}
	if p.tasks[e.Task] == nil {
		p.tasks[e.Task] = &events.Fold{}
	}
	return p.tasks[e.Task].Apply(e, r)
}

func (f *folded) states() []State {
	var all []State
	for _, n := range slices.Sorted(maps.Keys(f.parts)) {
		p := f.parts[n]
		all = append(all, State{Of: fmt.Sprintf("partition %d", n), Stored: p.state.Encode()})
		for _, id := range slices.Sorted(maps.Keys(p.tasks)) {
			t := p.tasks[id].Task
			v := t.View(p.state.Owner, n, p.next)
			all = append(all, State{Of: "task " + id, Stored: t.Encode(), View: &v})
		}
	}
	return append(all, f.inputs...)
}

// WriteStates writes states, one a line.
func WriteStates(w io.Writer, states []State) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for i := range states {
		if err := out.Encode(&states[i]); err != nil {
			return err
		}
	}
	return nil
}

// ReadStates reads what WriteStates wrote, as untyped JSON. So Compare also sees fields that this
// build doesn't know.
func ReadStates(r io.Reader) ([]any, error) {
	var all []any
	err := eachLine(r, func(b []byte) error {
		v, err := decode(b)
		all = append(all, v)
		return err
	})
	return all, err
}

func decode(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // 2^53 is no bound of ours
	var v any
	err := d.Decode(&v)
	return v, err
}

// Compare lists differences between the recorded states and today's, at most most lines. Everything
// recorded must still be there and equal. New fields are no difference.
func Compare(recorded []any, today []State, most int) ([]string, error) {
	byKey := map[string]any{}
	for i := range today {
		b, err := json.Marshal(&today[i])
		if err != nil {
			return nil, err
		}
		if byKey[today[i].Of], err = decode(b); err != nil {
			return nil, err
		}
	}
	var faults []string
	for _, want := range recorded {
		m, _ := want.(map[string]any)
		of, _ := m["of"].(string)
		got, ok := byKey[of]
		if !ok {
			faults = append(faults, fmt.Sprintf("%s: recorded, and not there today", of))
			continue
		}
		delete(byKey, of)
		faults = append(faults, differences(of, want, got)...)
	}
	for _, of := range slices.Sorted(maps.Keys(byKey)) {
		faults = append(faults, fmt.Sprintf("%s: there today, and not recorded", of))
	}
	return faults[:min(most, len(faults))], nil
}

func differences(at string, want, got any) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		var faults []string
		for _, k := range slices.Sorted(maps.Keys(w)) {
			if _, ok := g[k]; !ok {
				faults = append(faults, fmt.Sprintf("%s.%s: recorded as %v, and not there today", at, k, w[k]))
				continue
			}
			faults = append(faults, differences(at+"."+k, w[k], g[k])...)
		}
		return faults
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		var faults []string
		for i := range w {
			faults = append(faults, differences(fmt.Sprintf("%s.%d", at, i), w[i], g[i])...)
		}
		return faults
	default:
		if want == got {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s: recorded as %v, today %v", at, want, got)}
}
