package logclient

import (
	"errors"
	"fmt"

	"github.com/waybill-run/waybill/events"
)

// ErrClosed is wrapped by errors of calls on a Waiter that was closed.
var ErrClosed = errors.New("the client is closed")

// ErrUnreachable is wrapped by errors of calls that no broker answered.
var ErrUnreachable = errors.New("Kafka is unreachable")

// UnreadableError says that an event of a task can't be decoded or applied. Later events are not folded.
type UnreadableError struct{ Err error }

func (e *UnreadableError) Error() string { return e.Err.Error() }

// Unwrap returns the fault of the event.
func (e *UnreadableError) Unwrap() error { return e.Err }

// RefusedError says that a scheduler refused a submission or a command. It had no effect.
type RefusedError struct {
	Task   string
	Reason string
	State  events.TaskState // of the task; empty if no task has the id
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("task %q: refused: %s", e.Task, e.Reason)
}
