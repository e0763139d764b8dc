package main

import (
	"encoding/base64"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// deadletter is what is printed of a dead letter. Value is the original, as far
// as it was kept: as text where it is UTF-8, else in base64, as the encoding
// says.
type deadletter struct {
	At        *string           `json:"at"`
	Reason    string            `json:"reason"`
	Detail    string            `json:"detail"`
	Origin    string            `json:"origin"` // topic/partition/offset
	Key       string            `json:"key"`
	Size      int64             `json:"size"` // of the original, in bytes
	SHA256    string            `json:"sha256"`
	Partition int32             `json:"partition"`
	Offset    string            `json:"offset"`
	Headers   map[string]string `json:"headers"`
	Encoding  string            `json:"encoding"` // utf8 or base64
	Value     string            `json:"value"`
}

type deadletterOptions struct {
	tool
	since
	limit
	reasons []string
}

func newDeadletters() *cobra.Command {
	var o deadletterOptions
	cmd := &cobra.Command{
		Use:   "deadletters",
		Short: "Show the records that could not be used, the newest first, with the reason",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runDeadletters(cmd, &o) },
	}
	o.tool.flags(cmd)
	o.since.flags(cmd, "only those since")
	o.limit.flags(cmd)
	cmd.Flags().StringSliceVar(&o.reasons, "reason", nil, "only those with one of these reasons")
	cmd.AddCommand(newRedrive())
	return cmd
}

func checkReasons(reasons []string) error {
	for _, r := range reasons {
		if !slices.Contains(events.Reasons, events.Reason(r)) {
			return usage("--reason %q: one of %v", r, events.Reasons)
		}
	}
	return nil
}

func runDeadletters(cmd *cobra.Command, o *deadletterOptions) error {
	if err := o.begin(cmd); err != nil {
		return err
	}
	if err := checkReasons(o.reasons); err != nil {
		return err
	}
	if err := o.limit.check(&o.output); err != nil {
		return err
	}
	from, err := o.instant(time.Now())
	if err != nil {
		return err
	}
	l, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	var list []deadletter
	_, err = l.read(cmd.Context(), l.cfg.Namespace.Deadletters(), kafka.Range{Since: from}, func(r *events.Record) error {
		d := deadletterOf(r)
		if len(o.reasons) == 0 || slices.Contains(o.reasons, d.Reason) {
			list = append(list, d)
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b deadletter) int { return compareInstants(b.At, a.At) })
	list = cut(&o.limit, l.note, "dead letters", list)
	return printList(&o.output, cmd.OutOrStdout(), "AT REASON ORIGIN KEY SIZE DETAIL", list, func(d deadletter) []string {
		return []string{tableTime(d.At), d.Reason, d.Origin, dash(shorten(d.Key, 40)), strconv.FormatInt(d.Size, 10), shorten(d.Detail, 120)}
	})
}

func deadletterOf(r *events.Record) deadletter {
	d := deadletter{At: timeText(r.Time), Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10), Headers: map[string]string{}}
	for _, h := range r.Headers {
		d.Headers[h.Key] = string(h.Value)
	}
	d.Reason, d.Detail, d.Origin, d.SHA256 = d.Headers[events.HeaderReason], d.Headers[events.HeaderDetail], d.Headers[events.HeaderOrigin], d.Headers[events.HeaderSHA256]
	d.Key, d.Size = string(r.Key), int64(len(r.Value))
	if n, err := strconv.ParseInt(d.Headers[events.HeaderSize], 10, 64); err == nil {
		d.Size = n // of all of it; the value may have been cut
	}
	d.Encoding, d.Value = "utf8", string(r.Value)
	if !utf8.Valid(r.Value) {
		d.Encoding, d.Value = "base64", base64.StdEncoding.EncodeToString(r.Value)
	}
	return d
}
