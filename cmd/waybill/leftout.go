package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/text"
)

// lossOf converts what Kafka reports of corrupt events.
func lossOf(d *logreader.CorruptError) replay.Loss {
	return replay.Loss{Partition: d.Partition, Offset: d.Offset, Tasks: d.Keys, All: d.AllKeys, Err: d}
}

// leftOutNamed bounds how many ids are listed for one reason, unless the corrupt records themselves name the
// tasks: then all are listed.
const leftOutNamed = 20

// warnLeftOut lists the tasks that are left out.
func warnLeftOut(note io.Writer, o *replay.Omission) {
	var reasons []string
	byReason := map[string][]string{}
	named := map[string]bool{}
	for j := range o.Tasks {
		l := &o.Tasks[j]
		if byReason[l.Reason] == nil {
			reasons = append(reasons, l.Reason)
		}
		byReason[l.Reason] = append(byReason[l.Reason], strconv.Quote(l.Task))
		named[l.Reason] = slices.Contains(l.Loss.Tasks, l.Task)
	}
	for _, why := range reasons {
		ids, more := byReason[why], ""
		if n := len(ids) - leftOutNamed; n > 0 && !named[why] {
			ids, more = ids[:leftOutNamed], fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(note, "waybill: left out: %s%s: %s\n", strings.Join(ids, ", "), more, printable(why))
	}
}

// leftOutError returns an error if something is left out, else nil.
func leftOutError(o *replay.Omission) error {
	if o.IsEmpty() {
		return nil
	}
	others := ""
	if len(o.Unnamed) > 0 {
		others = fmt.Sprintf(", and the partitions %v may have other tasks without any readable event", o.Unnamed)
	}
	return exit(exitUnreachable, "%s left out, because events of them are or may be unreadable%s; `waybill timeline ID` shows the readable events of a task", text.Count(len(o.Tasks), "task"), others)
}
