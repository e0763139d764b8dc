package events

import (
	"encoding/json"
	"strconv"
	"time"
)

// The bounds of progress. MaxProgressBytes bounds the value of one report. MaxTaskProgressBytes bounds the values that
// the runs of a task store: a report that would exceed it is recorded without its value.
const (
	MaxProgressBytes     = 4 << 10
	MaxTaskProgressBytes = 64 << 10
	// PlainProgressEvery is the least time between the recorded reports of a run without a heartbeat.
	PlainProgressEvery = 10 * time.Second
	// heartbeatShare is the part of a heartbeat in which at most one report is recorded.
	heartbeatShare = 3
)

// VerbProgressed is the verb of AttemptProgressed.
const VerbProgressed Verb = "progressed"

// AttemptProgressed records that the agent of a running attempt reported progress. It arms the attempt's timer again:
// due after the heartbeat, or at the attempt's complete-by, whichever is earlier. Without a heartbeat it is due at
// complete-by, as before.
type AttemptProgressed struct {
	Kind    Kind
	Step    string
	Attempt int
	// Instance is the instance of the agent that reported, from the ce_source of its reply; empty: unknown.
	Instance string
	// Progress is at most MaxProgressBytes. It is empty if the report had no value, or none that fits into the task. The
	// run then keeps the one before.
	Progress json.RawMessage
}

func (f *AttemptProgressed) Type() string {
	return attemptType(f.Kind, "waybill.step.progressed.v1", "waybill.undo.progressed.v1")
}

func (f *AttemptProgressed) About() About {
	return About{Verb: VerbProgressed, Step: f.Step, Kind: f.Kind, Attempt: f.Attempt, Phase: PhaseGoesOn, Instance: f.Instance,
		Arms: TimerAttempt, Disarms: DisarmsOwn, Raw: &f.Progress}
}

func (f *AttemptProgressed) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(_ *Step, r *Run) {
		x := r.Interim()
		if x.ProgressAt = e.At; len(f.Progress) > 0 {
			x.Progress = f.Progress
		}
		r.setInterim(x)
	})
}

func (f *AttemptProgressed) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.interned("instance", &f.Instance)
	c.raw("progress", &f.Progress)
}

// SilenceEnds returns when the timer of an attempt is due after it gave a sign of life at now. by is its complete-by.
func (a Attempts) SilenceEnds(now, by time.Time) time.Time {
	if end := now.Add(a.Heartbeat); a.Heartbeat > 0 && end.Before(by) {
		return Millis(end)
	}
	return by
}

// ProgressEvery returns the least time between two recorded reports of a run.
func (a Attempts) ProgressEvery() time.Duration {
	if a.Heartbeat == 0 {
		return PlainProgressEvery
	}
	return a.Heartbeat / heartbeatShare
}

// silenceError returns the error of an attempt that expired after a silence.
func silenceError(silence time.Duration) *Error {
	return &Error{Code: CodeExpired, Message: "no progress within " + silence.String()}
}

// DropProgress drops the progress of a run that needs no further attempt.
func (r *Run) DropProgress() {
	x := r.Interim()
	x.Progress, x.ProgressAt = nil, time.Time{}
	r.setInterim(x)
}

// ProgressBytes returns the size of the progress that the runs of the task store. Bytes doesn't count it.
func (t *Task) ProgressBytes() int {
	n := 0
	for _, s := range t.Steps {
		n += len(s.Interim().Progress)
		if s.Undo != nil {
			n += len(s.Undo.Interim().Progress)
		}
	}
	return n
}

// parseHeartbeat reads ce_heartbeat: seconds, as in ce_retryafter. 0: there is none, or it can't be read.
func parseHeartbeat(value []byte) time.Duration {
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil || !(seconds > 0) || seconds > maxHeartbeat.Seconds() {
		return 0
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
}

// maxHeartbeat bounds ce_heartbeat as it is read. It is longer than any duration of a definition.
const maxHeartbeat = 100 * 365 * 24 * time.Hour

// appendHeartbeat appends a heartbeat as parseHeartbeat reads it.
func appendHeartbeat(dst []byte, d time.Duration) []byte {
	return strconv.AppendFloat(dst, d.Seconds(), 'f', -1, 64)
}
