package projections

import (
	"encoding/json"
	"unsafe"

	"github.com/waybill-run/waybill/events"
)

// A record's value is a slice of its batch (franz-go decodes records in place: kgo/source.go, readRawRecordsDirect),
// and raw JSON of an event is a slice of the value. So a task in memory would keep the whole batch alive. Therefore raw
// JSON that stays in memory is copied, once. (BenchmarkHeldMemory: with batches of 1 MB an open task takes 1,050 KB
// without the copy, and 1.6 KB with it.)

// rawFields calls fn with every raw JSON field of a task.
func rawFields(t *events.Task, fn func(*json.RawMessage)) {
	fn(&t.Input)
	fn(&t.Output)
	errorFields(t.Error, fn)
	for i := range t.Steps {
		s := t.Steps[i]
		fn(&s.Output)
		runFields(t, &s.Run, fn)
		if s.Undo != nil {
			runFields(t, s.Undo, fn)
		}
	}
}

func runFields(t *events.Task, r *events.Run, fn func(*json.RawMessage)) {
	if r.TaskInput {
		r.Input = t.Input
	} else {
		fn(&r.Input)
	}
	errorFields(r.Error, fn)
}

func errorFields(e *events.Error, fn func(*json.RawMessage)) {
	if e != nil {
		fn(&e.Details)
	}
}

// detachFact copies a fact's raw JSON. The fact was just decoded and isn't shared yet.
func detachFact(f events.Fact) {
	a := f.About()
	if a.Raw != nil {
		*a.Raw = clone(*a.Raw)
	}
	if err := a.Error(); err != nil {
		err.Details = clone(err.Details)
	}
}

// detachFrom copies the raw JSON of a task that aliases buf.
func detachFrom(t *events.Task, buf []byte) {
	rawFields(t, func(raw *json.RawMessage) {
		if within(*raw, buf) {
			*raw = clone(*raw)
		}
	})
}

// detachNew copies the raw JSON of t that before doesn't have. before is the task's version in memory, whose raw JSON
// was copied already. Clones of a task share errors with each other and with the event, so a new error is replaced, not
// changed.
func detachNew(t, before *events.Task) {
	if before == nil {
		before = &events.Task{}
	}
	detachRaw(&t.Input, before.Input)
	detachRaw(&t.Output, before.Output)
	detachError(&t.Error, before.Error)
	for i, s := range t.Steps {
		was := &events.Step{}
		if i < len(before.Steps) {
			was = before.Steps[i]
		}
		if s == was {
			continue
		}
		s = t.OwnStep(i)
		detachRaw(&s.Output, was.Output)
		detachRun(t, &s.Run, &was.Run)
		if s.Undo != nil {
			detachRun(t, s.Undo, was.Undo)
		}
	}
}

func detachRun(t *events.Task, r, before *events.Run) {
	if before == nil {
		before = &events.Run{}
	}
	if r.TaskInput {
		r.Input = t.Input
	} else {
		detachRaw(&r.Input, before.Input)
	}
	detachError(&r.Error, before.Error)
}

func detachRaw(raw *json.RawMessage, before json.RawMessage) {
	if len(*raw) > 0 && !(len(before) > 0 && &(*raw)[0] == &before[0]) {
		*raw = clone(*raw)
	}
}

func detachError(e **events.Error, before *events.Error) {
	if *e == nil || *e == before {
		return
	}
	c := **e
	c.Details = clone(c.Details)
	*e = &c
}

func clone(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	c := make(json.RawMessage, len(raw))
	copy(c, raw)
	return c
}

// within reports whether part is a slice of whole. Pointers are compared as numbers, which is valid since neither slice
// moves meanwhile.
func within(part, whole []byte) bool {
	if len(part) == 0 || len(whole) == 0 {
		return false
	}
	p, w := uintptr(unsafe.Pointer(unsafe.SliceData(part))), uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	return p >= w && p < w+uintptr(len(whole))
}
