package events

import (
	"slices"
	"strconv"
)

func decodeRecovery(r *Record) (string, Input, error) {
	t, _ := r.Header(HeaderType)
	if err := checkType(t, TypeRecovery); err != nil {
		return "", nil, err
	}
	rec := &Recovery{}
	if err := decodeUntrusted(r.Value, rec, 0); err != nil {
		return "", nil, badJSON(err)
	}
	if rec.Action == ActionForget {
		return decodeForget(rec)
	}
	if err := CheckTaskID(rec.Task); err != nil {
		return "", nil, err
	}
	if !slices.Contains(Actions, rec.Action) {
		return "", nil, unusable(ReasonBadField, "action %q: retry, wait, undo, hold or fire", rec.Action)
	}
	if rec.Timer == 0 || rec.Step != "" && !rec.Kind.known() {
		return "", nil, unusable(ReasonBadField, "timer %d, step %q, kind %q: names no timer", rec.Timer, rec.Step, rec.Kind)
	}
	return rec.Task, rec, nil
}

// Record makes the recovery's record.
func (r *Recovery) Record(ns Namespace, source string, partition int32) Record {
	if r.Action == ActionForget {
		return r.forgetRecord(ns, source, partition)
	}
	id := r.Task + "/" + strconv.FormatUint(r.Timer, 10) + "/" + string(r.Action)
	return Record{Topic: ns.Inbox(Recoveries), Partition: partition, Key: []byte(r.Task), Value: encodeObject(r),
		Headers: CloudHeaders(TypeRecovery, source, id)}
}
