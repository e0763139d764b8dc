package console

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/intake"
)

// Intakes knows all intakes, and changes them. It is safe for concurrent use. Its errors are intake.ErrNotFound, or those of
// Kafka.
type Intakes interface {
	// List returns all intakes, by name. It doesn't count dead letters.
	List(ctx context.Context) ([]intake.IntakeStatus, error)
	// Changed returns when a definition changed last, as far as this process knows, by this machine's clock.
	Changed() time.Time
	// ApplyIntake writes a definition. result says what was done.
	ApplyIntake(ctx context.Context, d *intake.Definition, by events.By) (result string, err error)
	// MapAgain returns a function that maps the records of dead letters again, with the intakes of now (redrive.MapAgain).
	MapAgain(ctx context.Context) (func(letter *events.Record) (events.Record, bool, error), error)
	// Pause, Resume and Delete change an intake.
	Pause(ctx context.Context, name string, by events.By) (result string, err error)
	Resume(ctx context.Context, name string, by events.By) (result string, err error)
	Delete(ctx context.Context, name string, by events.By) (result string, err error)
}

type (
	intakePath struct {
		Intake definitionName `path:"id" jsonschema:"The name of the intake."`
	}
	applyIntakeRequest struct{ Body consoleapi.ApplyCommand }
	intakeRequest      struct {
		intakePath
		Body consoleapi.IntakeCommand
	}
)

// intakeError returns the problem of an error of Config.Intakes.
func intakeError(name definitionName, err error) error {
	switch {
	case errors.Is(err, intake.ErrNotFound):
		return notFound("there is no intake %q; %s/intakes lists them", consoleapi.Printable(string(name)), api)
	case err != nil:
		return unavailable("can't read the intakes: %v; `waybill doctor` shows what is wrong", err)
	}
	return nil
}

// IntakeList lists intakes. It isn't in consoleapi: programs that use the Go API don't link expressions.
type IntakeList struct {
	Intakes []intake.IntakeStatus `json:"intakes" jsonschema:"The intakes, by name."`
}

func (c *call) intakes(*noParameters) (*IntakeList, error) {
	l := &IntakeList{Intakes: []intake.IntakeStatus{}}
	if c.cfg.Intakes == nil {
		return l, nil
	}
	notBefore := time.Now().Add(-sampleMaxAge)
	if changed := c.cfg.Intakes.Changed(); changed.After(notBefore) {
		notBefore = changed
	}
	list, at, err := c.sampledIntakes.get(c.r.Context(), notBefore, c.timeouts.answer)
	if err != nil {
		return nil, intakeError("", err)
	}
	l.Intakes = append(l.Intakes, list...)
	for i := range l.Intakes {
		l.Intakes[i].SampledAt = c.instantOf(at)
	}
	return l, nil
}

// deadlettersCountedFor is how long dead letters of intakes are counted, as they are listed.
const deadlettersCountedFor = 24 * time.Hour

// askIntakes asks for the intakes, and for their dead letters of the last 24 hours, for all callers.
func (c *Console) askIntakes(ctx context.Context) ([]intake.IntakeStatus, error) {
	list, err := c.cfg.Intakes.List(ctx)
	if err != nil || len(list) == 0 {
		return list, err
	}
	if leaderless, err := c.recentLetters.refresh(ctx, c.timeouts.answer); err != nil || len(leaderless) > 0 {
		return list, nil // the counts are unknown
	}
	counts, since := c.recentLetters.countByIntake(c.cfg.Now().Add(-deadlettersCountedFor))
	list = slices.Clone(list)
	for i := range list {
		list[i].Deadletters = &intake.IntakeDeadletters{Count: counts[list[i].Name], Since: events.InstantText(since)}
	}
	return list, nil
}

func (c *call) intake(in *intakePath) (*intake.IntakeStatus, error) {
	list, err := c.intakes(nil)
	if err != nil {
		return nil, err
	}
	for i := range list.Intakes {
		if list.Intakes[i].Name == string(in.Intake) {
			return &list.Intakes[i], nil
		}
	}
	return nil, intakeError(in.Intake, intake.ErrNotFound)
}

// applyIntake writes an intake to the log, as `waybill intake apply` does.
func (c *call) applyIntake(in *applyIntakeRequest) (*consoleapi.IntakeResult, error) {
	by, err := c.changedBy(in.Body.Reason, "intakes", c.cfg.Intakes != nil)
	if err != nil {
		return nil, err
	}
	p, err := intake.Parse(draftFile, []byte(in.Body.Definition), c.cfg.Namespace)
	if err != nil {
		return nil, unprocessable("the intake can't be used: %v", err)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.timeouts.control)
	defer cancel()
	result, err := c.cfg.Intakes.ApplyIntake(ctx, p.Definition, by)
	if err != nil {
		return nil, intakeError(definitionName(p.Definition.Name), err)
	}
	return &consoleapi.IntakeResult{Intake: p.Definition.Name, Result: result}, nil
}

// changeIntake handles a command that changes an intake.
func changeIntake(change func(Intakes, context.Context, string, events.By) (string, error)) func(*call, *intakeRequest) (*consoleapi.IntakeResult, error) {
	return func(c *call, in *intakeRequest) (*consoleapi.IntakeResult, error) {
		by, err := c.changedBy(in.Body.Reason, "intakes", c.cfg.Intakes != nil)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(c.r.Context(), c.timeouts.control)
		defer cancel()
		result, err := change(c.cfg.Intakes, ctx, string(in.Intake), by)
		if err != nil {
			return nil, intakeError(in.Intake, err)
		}
		return &consoleapi.IntakeResult{Intake: string(in.Intake), Result: result}, nil
	}
}
