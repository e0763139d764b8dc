package console

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/redrive"
)

// redriveMax bounds the dead letters of one request. Their records are written before it is answered.
const redriveMax = 1000

type redriveRequest struct{ Body consoleapi.RedriveCommand }

// redrive writes the original records of dead letters again, or shows what it would write.
func (c *call) redrive(in *redriveRequest) (*consoleapi.Redriven, error) {
	b := &in.Body
	named, since, err := c.selectedLetters(b)
	if err != nil {
		return nil, err
	}
	if err := c.acquireTopicRead(); err != nil {
		return nil, err
	}
	again, err := c.mapAgain()
	if err != nil {
		return nil, err
	}
	choice := redrive.NewChoice(c.cfg.Namespace, c.cfg.Source, named, b.Reasons)
	choice.MapIntakes(again)
	choice.OnlyIntake(b.Intake)
	reached, err := c.cfg.Log.Deadletters(c.r.Context(), TopicPosition{Since: since}, choice.Add)
	if err != nil {
		return nil, unavailable("can't read the dead letters: %v", err)
	}
	letters, missing := choice.Letters()
	leaderless := reached.Leaderless
	switch {
	case len(missing) > 0 && len(leaderless) > 0:
		return nil, unavailable("dead letter %s can't be read: partitions %v of the dead letters have no leader", missing[0], leaderless)
	case len(missing) > 0:
		return nil, notFound("there is no dead letter %s, or it doesn't match the other members; %s/deadletters lists them", missing[0], api)
	case len(letters) > redriveMax && !b.Preview:
		return nil, unprocessable("%d dead letters are selected, and one request writes at most %d: select by since, reasons or deadletters; or run `waybill deadletters redrive`", len(letters), redriveMax)
	}
	done := &consoleapi.Redriven{Selected: len(letters), Incomplete: make([]consoleapi.Incomplete, len(leaderless))}
	for i, p := range leaderless {
		done.Incomplete[i] = consoleapi.Incomplete{Partition: p, Why: consoleapi.NoLeader}
	}
	if !b.Preview {
		if err := c.writeLetters(letters, since, again); err != nil {
			return nil, err
		}
	}
	done.Refused = redrive.CountRefused(letters)
	done.Deadletters = letters[:min(len(letters), redriveMax)]
	return done, nil
}

// mapAgain returns what maps the records of intakes again; nil: nothing does.
func (c *call) mapAgain() (redrive.MapAgain, error) {
	if c.cfg.Intakes == nil {
		return nil, nil
	}
	again, err := c.cfg.Intakes.MapAgain(c.r.Context())
	if err != nil {
		return nil, unavailable("can't read the intakes: %v", err)
	}
	return again, nil
}

// selectedLetters checks what a request selects.
func (c *call) selectedLetters(b *consoleapi.RedriveCommand) (named []redrive.Position, since time.Time, err error) {
	for _, text := range b.Deadletters {
		at, err := redrive.ParsePosition(text)
		if err != nil {
			return nil, since, badRequest("%v", err)
		}
		named = append(named, at)
	}
	for _, reason := range b.Reasons {
		if !slices.Contains(events.Reasons, events.Reason(reason)) {
			return nil, since, badRequest("reason %q: must be one of %v", consoleapi.Printable(reason), events.Reasons)
		}
	}
	if len(named)+len(b.Reasons) == 0 && b.Since == "" && b.Intake == "" {
		return nil, since, badRequest(`select dead letters by "deadletters", "reasons", "intake" or "since"`)
	}
	if b.Since == "" {
		return named, time.UnixMilli(0), nil
	}
	if since, err = parsePastTime("since", b.Since, c.cfg.Now()); err != nil {
		return nil, since, badRequest("%v", err)
	}
	return named, since, nil
}

// writeLetters reads the dead letters again, and writes the accepted ones.
func (c *call) writeLetters(letters []redrive.Letter, since time.Time, again redrive.MapAgain) error {
	w := redrive.NewWriter(c.cfg.Namespace, c.cfg.Source, letters, c.cfg.Log.Write)
	w.MapIntakes(again)
	var failed error
	reached, err := c.cfg.Log.Deadletters(c.r.Context(), TopicPosition{Since: since}, func(r *events.Record) {
		if failed == nil {
			failed = w.Add(c.r.Context(), r)
		}
	})
	if err == nil && failed == nil {
		failed = w.Finish(c.r.Context(), reached.Leaderless)
	}
	switch {
	case err != nil:
		return unavailable("not all may have been written: can't read the dead letters: %v; send the request again: a record that is written twice counts once", err)
	case failed != nil:
		return unavailable("%v", failed)
	}
	return nil
}

// fate says what became of a dead letter.
func (c *call) fate(d *consoleapi.Deadletter, later *redrive.Later) consoleapi.DeadletterFate {
	offset, _ := strconv.ParseInt(d.Offset, 10, 64) // it was written by a console
	if at, ok := later.Of(redrive.Position{Partition: d.Partition, Offset: offset}, d.SHA256); ok {
		return consoleapi.DeadletterFate{State: consoleapi.FateRedriven, Deadletter: at.String()}
	}
	topic, _, _ := strings.Cut(d.Origin, "/")
	if topic == c.cfg.Namespace.Inbox(events.Tasks) && d.Reason != string(events.ReasonIDConflict) && c.hasTask(d) {
		return consoleapi.DeadletterFate{State: consoleapi.FateTask, Task: d.Key}
	}
	return consoleapi.DeadletterFate{State: consoleapi.FateOpen}
}

// hasTask reports whether there is a task with the id of a rejected submission. A task whose id could be forgotten before
// isn't that of the submission.
func (c *call) hasTask(d *consoleapi.Deadletter) bool {
	found, _ := c.cfg.Index.Find(events.Partition([]byte(d.Key), c.cfg.Partitions), d.Key)
	if found.Summary == nil || d.At == nil {
		return found.Summary != nil
	}
	rejected, err := time.Parse(events.TimeLayout, *d.At)
	return err != nil || !found.Summary.Forgettable(rejected)
}
