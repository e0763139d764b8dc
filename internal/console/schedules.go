package console

import (
	"context"
	"errors"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/schedule"
)

// Schedules knows all schedules, and changes them. It is safe for concurrent use. Its errors are those of package schedule,
// or those of Kafka.
type Schedules interface {
	// List returns all schedules, by name.
	List() ([]schedule.Schedule, error)
	// Find returns a schedule, or schedule.ErrNotFound.
	Find(name string) (*schedule.Schedule, error)
	// ApplySchedule writes a definition. result says what was done.
	ApplySchedule(ctx context.Context, d *schedule.Definition, by events.By) (result string, err error)
	// Pause, Resume and Delete change a schedule.
	Pause(ctx context.Context, name string, by events.By) (result string, err error)
	Resume(ctx context.Context, name string, by events.By) (result string, err error)
	Delete(ctx context.Context, name string, by events.By) (result string, err error)
	// Trigger asks for a task now, and Backfill for those of past instants. They return the id of the request.
	Trigger(ctx context.Context, name string, by events.By) (request string, err error)
	Backfill(ctx context.Context, name string, from, to time.Time, by events.By) (request string, instants int, err error)
}

// definitionName is the name of a schedule or an intake.
type definitionName string

func (n *definitionName) UnmarshalText(text []byte) error {
	*n = definitionName(text)
	return events.CheckDefinitionName(string(text))
}

var _ = addParameter[definitionName](&jsonschema.Schema{Type: "string", Pattern: "^[a-z][a-z0-9_-]{0,62}$"})

type (
	schedulePath struct {
		Schedule definitionName `path:"id" jsonschema:"The name of the schedule."`
	}
	applyScheduleRequest struct{ Body consoleapi.ApplyCommand }
	scheduleRequest      struct {
		schedulePath
		Body consoleapi.ScheduleCommand
	}
	backfillRequest struct {
		schedulePath
		Body consoleapi.BackfillCommand
	}
)

// scheduleError returns the problem of an error of Config.Schedules.
func scheduleError(name definitionName, err error) error {
	switch {
	case errors.Is(err, schedule.ErrNotFound):
		return notFound("there is no schedule %q; %s/schedules lists them", consoleapi.Printable(string(name)), api)
	case errors.Is(err, schedule.ErrBadRange), errors.Is(err, schedule.ErrTooManyRequests), errors.Is(err, schedule.ErrUnusable):
		return refused("%v", err)
	case err != nil:
		return unavailable("can't read the schedules: %v; `waybill doctor` shows what is wrong", err)
	}
	return nil
}

// ScheduleList lists schedules. It isn't in consoleapi: programs that use the Go API don't link expressions.
type ScheduleList struct {
	Schedules []schedule.Schedule `json:"schedules" jsonschema:"The schedules, by name."`
}

func (c *call) schedules(*noParameters) (*ScheduleList, error) {
	l := &ScheduleList{Schedules: []schedule.Schedule{}}
	if c.cfg.Schedules == nil {
		return l, nil
	}
	list, err := c.cfg.Schedules.List()
	if err != nil {
		return nil, scheduleError("", err)
	}
	l.Schedules = list
	return l, nil
}

func (c *call) schedule(in *schedulePath) (*schedule.Schedule, error) {
	if c.cfg.Schedules == nil {
		return nil, scheduleError(in.Schedule, schedule.ErrNotFound)
	}
	v, err := c.cfg.Schedules.Find(string(in.Schedule))
	return v, scheduleError(in.Schedule, err)
}

// changedBy is who changes a schedule or an intake, and why. known is false if this console has none of what is changed.
func (c *call) changedBy(reason, what string, known bool) (events.By, error) {
	if !known {
		return events.By{}, unavailable("this console has no %s", what)
	}
	if reason == "" || len(reason) > events.MaxWhyBytes {
		return events.By{}, badRequest(`"reason" is missing or has more than %d bytes: it is written to the log`, events.MaxWhyBytes)
	}
	return c.operatorOf(&consoleapi.CommandBody{Reason: reason}), nil
}

// applySchedule writes a schedule to the log, as `waybill schedule apply` does.
func (c *call) applySchedule(in *applyScheduleRequest) (*consoleapi.ScheduleResult, error) {
	by, err := c.changedBy(in.Body.Reason, "schedules", c.cfg.Schedules != nil)
	if err != nil {
		return nil, err
	}
	d, err := schedule.Parse(draftFile, []byte(in.Body.Definition))
	if err != nil {
		return nil, unprocessable("the schedule can't be used: %v", err)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.timeouts.control)
	defer cancel()
	result, err := c.cfg.Schedules.ApplySchedule(ctx, d, by)
	if err != nil {
		return nil, scheduleError(definitionName(d.Name), err)
	}
	return &consoleapi.ScheduleResult{Schedule: d.Name, Result: result}, nil
}

// changeSchedule handles a command that changes a schedule.
func changeSchedule(change func(Schedules, context.Context, string, events.By) (string, error)) func(*call, *scheduleRequest) (*consoleapi.ScheduleResult, error) {
	return func(c *call, in *scheduleRequest) (*consoleapi.ScheduleResult, error) {
		by, err := c.changedBy(in.Body.Reason, "schedules", c.cfg.Schedules != nil)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(c.r.Context(), c.timeouts.control)
		defer cancel()
		result, err := change(c.cfg.Schedules, ctx, string(in.Schedule), by)
		if err != nil {
			return nil, scheduleError(in.Schedule, err)
		}
		return &consoleapi.ScheduleResult{Schedule: string(in.Schedule), Result: result}, nil
	}
}

// resultAsked is the result of a trigger or a backfill.
const resultAsked = "asked"

func (c *call) triggerSchedule(in *scheduleRequest) (*consoleapi.ScheduleResult, error) {
	by, err := c.changedBy(in.Body.Reason, "schedules", c.cfg.Schedules != nil)
	if err != nil {
		return nil, err
	}
	request, err := c.cfg.Schedules.Trigger(c.r.Context(), string(in.Schedule), by)
	if err != nil {
		return nil, scheduleError(in.Schedule, err)
	}
	return &consoleapi.ScheduleResult{Schedule: string(in.Schedule), Result: resultAsked, Request: request}, nil
}

func (c *call) backfillSchedule(in *backfillRequest) (*consoleapi.ScheduleResult, error) {
	by, err := c.changedBy(in.Body.Reason, "schedules", c.cfg.Schedules != nil)
	if err != nil {
		return nil, err
	}
	var times [2]time.Time
	for i, text := range []string{in.Body.From, in.Body.To} {
		if times[i], err = time.Parse(time.RFC3339, text); err != nil {
			return nil, badRequest("%q isn't an instant such as 2026-11-01T00:00:00Z", consoleapi.Printable(text))
		}
	}
	request, n, err := c.cfg.Schedules.Backfill(c.r.Context(), string(in.Schedule), times[0], times[1], by)
	if err != nil {
		return nil, scheduleError(in.Schedule, err)
	}
	return &consoleapi.ScheduleResult{Schedule: string(in.Schedule), Result: resultAsked, Request: request, Instants: n}, nil
}
