package scheduler

import (
	"encoding/json"
	"time"

	"github.com/waybill-run/waybill/events"
)

// recordProgress records that the agent of a running attempt reported progress, which arms its timer again. The token is
// right. Reports that come too soon after the last recorded one change nothing, so that an agent can't fill the log. Nor
// do reports after complete-by: the attempt's time is over, whatever its agent does.
func (d *decider) recordProgress(i int, ref events.RequestRef, instance string, value json.RawMessage) {
	run, rule := d.Task.Run(i, ref.Kind), d.Task.Plan.AttemptsOf(i, ref.Kind)
	last := run.Interim()
	switch {
	case ref.Kind == events.Check: // it is a question, without a heartbeat
		d.Ignored = IgnoredProgressOfCheck
		return
	case !d.now.Before(run.CompleteBy):
		d.Ignored = IgnoredProgressLate
		return
	case !last.ProgressAt.IsZero() && d.now.Sub(last.ProgressAt) < rule.ProgressEvery():
		d.Ignored = IgnoredProgressEarly
		return
	}
	if string(value) == "null" || d.Task.ProgressBytes()-len(last.Progress)+len(value) > events.MaxTaskProgressBytes {
		value = nil
	}
	f := &events.AttemptProgressed{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Instance: instance, Progress: value}
	d.emit(f, rule.SilenceEnds(d.now, run.CompleteBy), d.policyOf(i, f))
}

// silenceOf returns the heartbeat that passed without progress in a running attempt whose timer is due; 0: its
// complete-by has passed.
func (d *decider) silenceOf(i int, k events.Kind) time.Duration {
	if run := d.Task.Run(i, k); run.Timer.Due.Before(run.CompleteBy) {
		return d.Task.Plan.AttemptsOf(i, k).Heartbeat
	}
	return 0
}
