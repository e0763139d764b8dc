package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/logclient"
	"github.com/waybill-run/waybill/internal/text"
)

type signalOptions struct {
	tool
	data, id, by string
}

func newSignal() *cobra.Command {
	var o signalOptions
	cmd := &cobra.Command{
		Use:   "signal TASK NAME",
		Short: "Send a signal to a task: an approval, a message",
		Long: `Send a signal to a task. A step that waits for a signal of this name completes with it. If the step hasn't
started, the signal is kept until it does.

Signals with the same task, name and --id are one signal. Without --id the signal has a new id, so sending
it again is another signal.

The command prints the partition and offset of the signal as soon as all in-sync replicas have it. What
happens to it is in the timeline of the task. If no step can take it, it becomes a dead letter with the reason.`,
		Example: `  waybill signal order-7 approved --data '{"yes":true}' --id click-1 --by alice
  waybill signal order-7 delivered --data @receipt.json`,
		Args: arguments("a task's id", "a signal's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return runSignal(cmd, &o, args) },
	}
	o.tool.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.data, "data", "null", "data of the signal: JSON, or @FILE")
	f.StringVar(&o.id, "id", "", "id of the signal; repeating it has no second effect (default: a new UUID)")
	f.StringVar(&o.by, "by", "", "who sends the signal (default: user and host); recorded as by_claimed, because Kafka doesn't record which principal wrote a record")
	return cmd
}

// sentSignal is a signal as it is printed.
type sentSignal struct {
	Task      string `json:"task"`
	Name      string `json:"name"`
	ID        string `json:"id"`
	Partition int32  `json:"partition"`
	Offset    string `json:"offset"`
}

func runSignal(cmd *cobra.Command, o *signalOptions, args []string) error {
	s, err := o.signal(args)
	if err != nil {
		return err
	}
	record, err := logclient.SignalRecord(events.Namespace(o.namespace), toolSource, s)
	if err != nil {
		return exit(exitUsage, "%w", err)
	}
	l, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	producer, err := kafka.OpenProducer(l.cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	ack, err := producer.SendOne(cmd.Context(), record)
	if err != nil {
		return l.connectionLost(fmt.Errorf("the signal may not have been written; send it again with --id %s: %w", s.ID, err))
	}
	v := sentSignal{Task: s.Task, Name: s.Name, ID: s.ID, Partition: ack.Partition, Offset: fmt.Sprint(ack.Offset)}
	return o.printObject(cmd.OutOrStdout(), v, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "signal %s of %s written at %d/%s, with the id %s; `waybill timeline %s` shows whether a step has taken it\n",
			s.Name, printable(s.Task), v.Partition, v.Offset, printable(s.ID), printable(s.Task))
		return err
	})
}

// signal builds the signal from the arguments and the flags.
func (o *signalOptions) signal(args []string) (*events.Signal, error) {
	s := &events.Signal{Task: args[0], Name: args[1], ID: o.id, Data: json.RawMessage(o.data), Claimed: o.by}
	if s.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("generate an id: %w", err)
		}
		s.ID = id.String()
	}
	if s.Claimed == "" {
		s.Claimed = currentUser()
	}
	if file, ok := strings.CutPrefix(o.data, "@"); ok {
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, exit(exitUsage, "--data: %w", err)
		}
		s.Data = trimBOM(body)
	}
	if err := events.CheckJSON(s.Data); err != nil {
		return nil, usage("--data: %v: %s", err, text.Shorten(string(s.Data), 60))
	}
	return s, nil
}
