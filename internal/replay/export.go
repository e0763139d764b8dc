package replay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Export copies events of a Source to a file that a Reader reads. A task with an unreadable event is left out
// completely, and named in the file's first line.
type Export struct {
	IDs         []string  // the tasks; empty: all
	From, Until time.Time // bounds of the submission time; zero: none
	// Restart empties the output, which then gets a file without the tasks that are left out.
	Restart func() error

	selected  map[string]bool // the tasks of IDs, and whether they were found; empty: all
	omitted   *Omission       // tasks that aren't exported; nil: not known yet
	submitted map[string]bool // whether tasks with a readable first event are in the range
	headless  map[string]bool // tasks without a readable first event
	exported  map[string]bool
	events    int
}

// Exported is the result of an export.
type Exported struct {
	Events, Tasks int
	// Omission is what is left out because events can't be read; nil: not known.
	Omission *Omission
	// Headless counts the tasks that are left out because the time of their submission is unknown: their first event
	// can't be read.
	Headless int
}

// ErrAllOmitted says that all of the selected tasks are left out. Nothing was exported.
var ErrAllOmitted = errors.New("all of the tasks are left out, because events of them are or may be unreadable")

// NotFoundError says that a selected task has no events.
type NotFoundError struct{ Task string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("no task %q", e.Task) }

// Run writes the export. If events can't be read, it starts again without the tasks that may have lost an event. With an
// error the result is as far as it is known.
func (x *Export) Run(ctx context.Context, from Source, out io.Writer) (Exported, error) {
	x.selected = map[string]bool{}
	for _, id := range x.IDs {
		x.selected[id] = false
	}
	omitted, err := x.run(ctx, from, out)
	result := Exported{Events: x.events, Tasks: len(x.exported), Omission: omitted}
	for id := range x.headless {
		if omitted != nil && !omitted.Contains(id) {
			result.Headless++
		}
	}
	return result, err
}

func (x *Export) run(ctx context.Context, from Source, out io.Writer) (*Omission, error) {
	lost := &Losses{}
	p, err := x.writePass(ctx, from, out, Without{}, lost)
	if err != nil {
		return nil, err
	}
	omitted, err := lost.FindOmission(ctx, from, x.singleTask(), x.concerns)
	if err != nil {
		return nil, err
	}
	if len(x.selected) > 0 {
		omitted.Unnamed = nil // only the selected tasks matter
	}
	for id, found := range x.selected {
		if !found && !omitted.Contains(id) {
			return omitted, &NotFoundError{id}
		}
	}
	x.omitted = omitted
	switch {
	case omitted.IsEmpty():
		return omitted, p.end()
	case len(x.selected) > 0 && len(omitted.Tasks) == len(x.selected):
		return omitted, ErrAllOmitted
	}
	if err := x.Restart(); err != nil {
		return omitted, err
	}
	again := &Losses{}
	if p, err = x.writePass(ctx, from, out, omitted.without(lost), again); err != nil {
		return omitted, err
	}
	if more := again.firstNotIn(lost); more != nil {
		return omitted, fmt.Errorf("more events became unreadable during the export; run it again: %w", more.Err)
	}
	return omitted, p.end()
}

// exportPass is a file that is written except for its last line.
type exportPass struct {
	to *bufio.Writer
	w  *Writer
}

func (p *exportPass) end() error {
	if err := p.w.End(); err != nil {
		return err
	}
	return p.to.Flush()
}

// writePass reads the source once, and writes the selected events that can be read.
func (x *Export) writePass(ctx context.Context, from Source, out io.Writer, without Without, lost *Losses) (*exportPass, error) {
	x.submitted, x.headless, x.exported, x.events = map[string]bool{}, map[string]bool{}, map[string]bool{}, 0
	p := &exportPass{to: bufio.NewWriterSize(out, 1<<20)}
	p.w = NewWriter(p.to, from.Head())
	p.w.SetWithout(without)
	err := from.Read(ctx, x.singleTask(), func(r *events.Record) error {
		if !x.wants(r) {
			return nil
		}
		x.events++
		return p.w.Write(r)
	}, lost.Add)
	return p, err
}

func (x *Export) ranged() bool { return !x.From.IsZero() || !x.Until.IsZero() }

// singleTask returns the id of the task to export, or "" if there are several: then all partitions are read.
func (x *Export) singleTask() string {
	if len(x.selected) == 1 {
		return x.IDs[0]
	}
	return ""
}

// concerns reports whether a task that is left out was selected, as far as is known.
func (x *Export) concerns(id string, _ *events.Task) bool {
	if len(x.selected) > 0 {
		_, asked := x.selected[id]
		return asked
	}
	in, known := x.submitted[id]
	return !x.ranged() || in || !known
}

// wants reports whether a record is exported. Claims of partitions are, because they name the owners of tasks. An export
// of all tasks contains every record, also unusable ones, so that the file shows what is wrong with a log.
func (x *Export) wants(r *events.Record) bool {
	id := string(r.Key)
	wanted := true
	switch {
	case id == "":
		return true
	case x.omitted != nil && x.omitted.Contains(id):
		return false
	case len(x.selected) > 0:
		if _, wanted = x.selected[id]; wanted {
			x.selected[id] = true
		}
	case x.ranged():
		wanted = x.inRange(id, r)
	}
	if wanted {
		x.exported[id] = true
	}
	return wanted
}

// inRange reports whether a task was submitted within the range. It is known from the task's first event, which
// precedes the others unless it was lost.
func (x *Export) inRange(id string, r *events.Record) bool {
	if _, seq, err := events.EventName(r); err == nil && seq == 1 {
		x.submitted[id] = x.submitted[id] || !x.From.After(r.Time) && (x.Until.IsZero() || !r.Time.After(x.Until))
	}
	in, known := x.submitted[id]
	if !known {
		x.headless[id] = true
	}
	return in
}
