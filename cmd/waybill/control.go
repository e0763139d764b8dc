package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/logclient"
	"github.com/waybill-run/waybill/internal/text"
)

const defaultAnswerTimeout = 30 * time.Second

// controlOptions are the flags of all control commands.
type controlOptions struct {
	tool
	who, why  string
	requestID string
	timeout   time.Duration
	yes       bool // skip the question on a terminal
}

func (o *controlOptions) flags(cmd *cobra.Command) {
	o.tool.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.who, "who", "", "who sends the command (default: user and host); recorded as by_claimed, because Kafka doesn't record which principal wrote a record")
	f.StringVar(&o.why, "why", "", "reason, recorded in the log (required)")
	f.BoolVar(&o.yes, "yes", false, "don't ask for confirmation on a terminal")
	f.StringVar(&o.requestID, "request-id", "", "id of the command; repeating it has no second effect and returns the same answer (default: a new UUID)")
	f.DurationVar(&o.timeout, "timeout", defaultAnswerTimeout, "time to wait for the scheduler's answer")
}

func newResubmit() *cobra.Command {
	var step string
	cmd := newControl(&cobra.Command{
		Use:   "resubmit ID | --filter FILTER",
		Short: "Run the failed step of a held task again",
		Long: `Run the failed step of a held task again, with a failure count of zero. Use it when the cause is fixed: the
service is back, the account has money. A held undo is retried in the same way. The count of attempts
continues, and the idempotency key stays the same unless the step was rejected.

The command is recorded in the log with who, why and its request id, and the scheduler answers it. If the
task's state doesn't allow it, it is refused: exit code 8.
` + batchHelp,
		Example: `  waybill resubmit order-7 --why 'the bank is back'
  waybill resubmit --filter 'workflow:order step_in_error:charge' --canary 1 --rate 50 --why 'the bank is back'`,
	}, func() *events.Control { return &events.Control{Command: events.Resubmit, Step: step} })
	cmd.Flags().StringVar(&step, "step", "", "only if this step is held")
	return cmd
}

func newUndo() *cobra.Command {
	var processed bool
	cmd := newControl(&cobra.Command{
		Use:   "undo ID | --filter FILTER",
		Short: "Undo the completed steps of a task",
		Long: `Undo a task: its steps are undone in reverse order of completion, and the task ends as undone. Use it for a
held task that should not continue. First, running attempts end; steps whose effect is unknown
are undone before completed ones.

A task that has ended as processed is undone only with --processed, for example to refund a finished order.
The scheduler then reads the task's history from the log again.

The command is recorded in the log with who, why and its request id, and the scheduler answers it. If the
task's state doesn't allow it, it is refused: exit code 8.
` + batchHelp,
		Example: `  waybill undo order-7 --why 'the customer withdrew'
  waybill undo order-7 --processed --why 'the customer returned it'
  waybill undo --filter 'state:held label:campaign=spring' --why 'the campaign was withdrawn'`,
	}, func() *events.Control { return &events.Control{Command: events.UndoTask, Processed: processed} })
	cmd.Flags().BoolVar(&processed, "processed", false, "undo the task even if it has ended as processed")
	return cmd
}

func newCancel() *cobra.Command {
	var keep bool
	cmd := newControl(&cobra.Command{
		Use:   "cancel ID | --filter FILTER",
		Short: "Cancel a task: start no more steps, undo completed ones",
		Long: `Cancel a task. No further step starts, completed steps are undone (with --keep they are left as they
are), and the task ends as cancelled.

The command is recorded in the log with who, why and its request id, and the scheduler answers it. If the
task's state doesn't allow it, it is refused: exit code 8.
` + batchHelp,
		Example: `  waybill task cancel order-7 --why 'the customer withdrew'
  waybill task cancel order-7 --keep --why 'shipped by hand'
  waybill task cancel --filter 'id:import-7-' --rate 20 --why 'imported twice'`,
	}, func() *events.Control { return &events.Control{Command: events.Cancel, Keep: keep} })
	cmd.Flags().BoolVar(&keep, "keep", false, "leave completed steps as they are; only those whose effect is unknown are undone")
	return cmd
}

func newRelease() *cobra.Command {
	var o controlOptions
	var as string
	var result string
	var noResult bool
	cmd := &cobra.Command{
		Use:   "release ID STEP --as completed|undone",
		Short: "Record that a held step was completed or undone by hand",
		Long: `Record that a step of a held task was completed or undone by hand. Use it when a person did what the service
could not do. With --as completed the task continues with the output that --result gives, or with null if
--no-result is given. With --as undone the step counts as undone.

The command is recorded in the log with who, why and its request id, and the scheduler answers it. If the
task's state doesn't allow it, it is refused: exit code 8.`,
		Example: `  waybill release order-7 charge --as completed --result '{"receipt":"r-12"}' --why 'paid by bank transfer'
  waybill release order-7 reserve --as undone --why 'released in the warehouse'`,
		Args: arguments("a task's id", "a step"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, args[:1], func() (*events.Control, error) {
				if as != string(events.StepCompleted) && as != string(events.StepUndone) {
					return nil, usage("--as %q: must be completed or undone", as)
				}
				output, err := releaseResult(events.StepState(as), result, noResult)
				if err != nil {
					return nil, err
				}
				return &events.Control{Command: events.Release, Step: args[1], As: events.StepState(as), Output: output}, nil
			})
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&as, "as", "", "outcome of the step: completed or undone")
	cmd.Flags().StringVar(&result, "result", "", "with --as completed: output of the step, as JSON; later steps can read it")
	cmd.Flags().BoolVar(&noResult, "no-result", false, "with --as completed: the output of the step is null")
	return cmd
}

// releaseResult checks --result and --no-result. With --as completed one of them is required, because later
// steps may read the output.
func releaseResult(as events.StepState, result string, none bool) (json.RawMessage, error) {
	switch {
	case as == events.StepUndone && (result != "" || none):
		return nil, usage("--result and --no-result need --as completed: a step that is undone has no output")
	case as == events.StepUndone:
		return nil, nil
	case (result != "") == none:
		return nil, usage("--as completed: give the step's output with --result JSON, or --no-result if there is none")
	case none:
		return nil, nil
	case !events.ValidJSON([]byte(result)):
		return nil, usage("--result is not JSON in UTF-8: %s", text.Shorten(result, 60))
	}
	return json.RawMessage(result), nil
}

// controlResult is the answer to a control as commands print it.
type controlResult struct {
	Task      string           `json:"task"`
	Command   events.Command   `json:"command"`
	RequestID string           `json:"request_id"`
	Accepted  bool             `json:"accepted"`
	Seq       uint64           `json:"seq,omitempty"`
	State     events.TaskState `json:"state,omitempty"`
	Reason    string           `json:"reason,omitempty"`
}

// run sends a control, waits for its answer and prints it.
func (o *controlOptions) run(cmd *cobra.Command, args []string, build func() (*events.Control, error)) error {
	id, err := idArgument(args)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	x, err := build()
	if err != nil {
		return err
	}
	x.Task = id
	if err := o.setIssuer(x); err != nil {
		return err
	}
	record, err := logclient.CommandRecord(events.Namespace(o.namespace), toolSource, x)
	if err != nil {
		return exit(exitUsage, "%w", err)
	}
	if err := o.confirm(cmd, x); err != nil {
		return err
	}
	l, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	a, written, err := l.sendCommand(ctx, x, record)
	switch timedOut := ctx.Err() != nil && cmd.Context().Err() == nil; {
	case err == nil:
	case timedOut && !written:
		return exit(exitUnreachable, "the command may not have been written: %w; `waybill doctor` says what is wrong; send it again with --request-id %s", err, x.RequestID)
	case timedOut:
		return exit(exitTimeout, "no answer within %s; is a scheduler running? The command is in the log and takes effect when a scheduler reads it. To wait for its answer again, repeat it with --request-id %s", o.timeout, x.RequestID)
	default:
		return l.connectionLost(err)
	}
	return o.printAnswer(cmd.OutOrStdout(), x, a)
}

// check checks the flags that all commands have.
func (o *controlOptions) check() error {
	if o.timeout <= 0 {
		return usage("--timeout %s: must be a positive duration", o.timeout)
	}
	if o.why == "" {
		return usage("give the reason, which is logged: --why 'the bank is back'")
	}
	return nil
}

// sendCommand writes a command and waits for its answer.
func (l *logbook) sendCommand(ctx context.Context, x *events.Control, r events.Record) (*events.Answer, bool, error) {
	producer, err := kafka.OpenProducer(l.cfg)
	if err != nil {
		return nil, false, err
	}
	defer producer.Close()
	log := &logclient.KafkaLog{Namespace: l.cfg.Namespace, Admin: l.admin, Reader: l.reader}
	return logclient.SendCommand(ctx, log, l.cfg.Namespace, producer.SendOne, x, r)
}

// confirm asks for confirmation on a terminal.
func (o *controlOptions) confirm(cmd *cobra.Command, x *events.Control) error {
	if o.yes || !onTerminal(cmd.InOrStdin()) {
		return nil
	}
	return askConfirmation(cmd.InOrStdin(), cmd.ErrOrStderr(), commandText(x))
}

// commandText describes a command in a question.
func commandText(x *events.Control) string {
	command := string(x.Command) + " " + printable(x.Task)
	if x.Step != "" {
		command += ", step " + printable(x.Step)
	}
	if x.As != "" {
		command += ", as " + string(x.As)
	}
	if len(x.Output) > 0 {
		command += ", with the result " + text.Shorten(string(x.Output), 60)
	}
	if x.Version > 0 {
		command += ", to version " + strconv.Itoa(x.Version)
	}
	if x.DryRun {
		command += ", as a dry run"
	}
	if x.Processed {
		command += ", even if it has ended as processed: what it did is taken back"
	}
	if x.Keep {
		command += ", and keep what completed"
	}
	return command
}

// setIssuer sets the operator's name and the request id.
func (o *controlOptions) setIssuer(x *events.Control) error {
	x.By = events.By{Claimed: o.who, Why: o.why, RequestID: o.requestID}
	if x.Claimed == "" {
		x.Claimed = currentUser()
	}
	if x.RequestID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("generate a request id: %w", err)
		}
		x.RequestID = id.String()
	}
	return nil
}

func currentUser() string {
	who, host := os.Getenv("USER"), "unknown host"
	if u, err := user.Current(); who == "" && err == nil {
		who = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return who + "@" + host
}

func (o *controlOptions) printAnswer(out io.Writer, x *events.Control, a *events.Answer) error {
	v := controlResult{Task: x.Task, Command: x.Command, RequestID: x.RequestID, Accepted: a.Accepted, Seq: a.Seq, State: a.State, Reason: a.Reason}
	err := o.printObject(out, v, func(out io.Writer) error {
		if !a.Accepted {
			return nil // reported by the error below
		}
		_, err := fmt.Fprintf(out, "%s of %s accepted: event %d of the task, which is now %s\n", x.Command, printable(x.Task), a.Seq, stateText(a.State))
		return err
	})
	switch {
	case err != nil || a.Accepted:
		return err
	case a.State == "":
		return exit(exitNotFound, "no task %q is known to a scheduler: it was never accepted, or its id was forgotten (dedupe_for of its workflow); %s", x.Task, whereToLook(x.Task))
	}
	return exit(exitRefused, "refused: %s; `waybill task get %s` shows its state", a.Reason, x.Task)
}
