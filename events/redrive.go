package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// HeaderHeaders is the header of a dead letter that contains headers of the original (keptHeaders), as a JSON object of
// texts. It is omitted if there are none, or if they exceed MaxKeptHeadersBytes.
const HeaderHeaders = "waybill_headers"

// MaxKeptHeadersBytes bounds HeaderHeaders.
const MaxKeptHeadersBytes = 4 << 10

// keptHeaders are the headers that the contracts of inboxes and notifications name. The route of a record (hop, origin)
// isn't kept, since a redriven record is routed again.
var keptHeaders = [...]string{HeaderType, HeaderID, HeaderContentType, HeaderTraceparent, HeaderRequest, HeaderOutcome, HeaderEffect, HeaderReplyTo,
	HeaderParent, HeaderDepth, HeaderItem, HeaderStepAlone, HeaderKnownUntil, HeaderIntake, HeaderStatusQuery, HeaderSignal}

// keepHeaders returns the value of HeaderHeaders for the dead letter of a record; nil: none.
func keepHeaders(r *Record) []byte {
	var kept []byte
	for _, name := range keptHeaders {
		v, ok := r.Header(name)
		if !ok || !utf8.ValidString(v) {
			continue
		}
		kept = append(jsonscan.AppendString(append(kept, ','), name), ':')
		kept = jsonscan.AppendString(kept, v)
	}
	if kept == nil || len(kept) >= MaxKeptHeadersBytes {
		return nil
	}
	kept[0] = '{'
	return append(kept, '}')
}

// Redrive makes the record that writes a dead letter's original to its topic again, after an operator removed the
// reason. It has the original's bytes and kept headers. Its ce_id names the dead letter, except for a notification. So
// redriving a dead letter twice repeats the same submission, reply or command, which has no further effect.
//
// The error says why that can't be done, or why it would become a dead letter again.
func Redrive(ns Namespace, source string, letter *Record) (Record, error) {
	origin, _ := letter.Header(HeaderOrigin)
	rest, _, _ := cutLast(origin)
	topic, _, _ := cutLast(rest)
	kept, err := keptOf(letter)
	if err == nil {
		err = whole(letter)
	}
	if err != nil {
		return Record{}, err
	}
	r := Record{Topic: topic, Partition: -1, Key: letter.Key, Value: letter.Value}
	if topic == ns.Notifications() {
		return renotify(r, source, letter, kept)
	}
	for i := range Inboxes {
		if topic == ns.Inbox(i) {
			return redriveInput(r, i, source, letter, kept)
		}
	}
	if ref := IntakeOf(letter); ref != nil {
		return Record{}, fmt.Errorf("it is of the intake %s: `waybill deadletters redrive` maps it again", ref.Name)
	}
	return Record{}, fmt.Errorf("it came from %q, which is no inbox of the namespace %s, nor its notifications", topic, ns)
}

// redriveID begins the ce_id of a redriven record.
const redriveID = "redrive/"

// Redriven reports whether a record of an inbox claims to be a redriven dead letter.
func Redriven(r *Record) bool { return bytes.HasPrefix(r.header(HeaderID), []byte(redriveID)) }

// RedriveOf returns the position of the earlier dead letter if this one came from its redrive. Any writer of the inbox
// can forge that; callers must compare the hashes. ok is false if the dead letter isn't from a redrive.
func RedriveOf(letter *Record) (partition int32, offset int64, ok bool) {
	kept, err := keptOf(letter)
	if err != nil {
		return 0, 0, false
	}
	place, again := strings.CutPrefix(kept[HeaderID], redriveID)
	at, err := ParseCause(Tasks.String() + "/" + place) // a redrive's id has the form of a cause
	return at.Partition, at.Offset, again && err == nil
}

// NotificationOf identifies the notification in a dead letter, with its topic. It is the same for
// each redrive. It is empty for any other dead letter.
func NotificationOf(letter *Record) string {
	kept, err := keptOf(letter)
	if err != nil || kept[HeaderReplyTo] == "" {
		return ""
	}
	return kept[HeaderReplyTo] + " " + kept[HeaderID]
}

// whole checks that a dead letter has all bytes of the original.
func whole(letter *Record) error {
	size, _ := letter.Header(HeaderSize)
	sum, _ := letter.Header(HeaderSHA256)
	have := sha256.Sum256(letter.Value)
	switch {
	case size != strconv.Itoa(len(letter.Value)):
		return fmt.Errorf("%d of %s bytes of the original are kept", len(letter.Value), size)
	case sum != hex.EncodeToString(have[:]):
		return errors.New("its bytes are not those of the original: their hash differs")
	}
	return nil
}

// keptOf returns the original's headers from a dead letter; nil: none are kept.
func keptOf(letter *Record) (map[string]string, error) {
	text, ok := letter.Header(HeaderHeaders)
	if !ok {
		return nil, nil
	}
	var kept map[string]string
	if err := json.Unmarshal([]byte(text), &kept); err != nil {
		return nil, fmt.Errorf("%s is no object of texts: %w", HeaderHeaders, err)
	}
	return kept, nil
}

// inboxTypes are the ce_types of the inboxes.
var inboxTypes = [Inboxes]string{Controls: TypeControl, Replies: TypeReply, Recoveries: TypeRecovery, Tasks: TypeSubmission, Signals: TypeSignal}

func redriveInput(r Record, inbox Inbox, source string, letter *Record, kept map[string]string) (Record, error) {
	reason, _ := letter.Header(HeaderReason)
	delete(kept, HeaderReplyTo) // only a notification has it
	switch {
	case inbox == Recoveries:
		return r, errors.New("a supervisor asks for a recovery again, as long as its timer is armed")
	case inbox == Replies && kept == nil:
		return r, errors.New("the dead letter doesn't keep its headers, which say whose reply it is")
	case Reason(reason) == ReasonIDConflict:
		return r, errors.New("the id is another submission's; submit it under another id")
	}
	if inbox == Signals {
		kept = keepSignalID(letter, kept)
	}
	r.Headers = redriven(letter, source, inboxTypes[inbox], kept)
	task, _, err := DecodeInput(inbox, &r)
	switch {
	case err != nil:
		return r, fmt.Errorf("it would be a dead letter again: %w", err)
	case len(r.Key) > 0 && string(r.Key) != task:
		return r, fmt.Errorf("it would be a dead letter again: its key is %q, and it is of task %q", r.Key, task)
	}
	r.Key = []byte(task)
	return r, nil
}

// keepSignalID adds to the kept headers what a signal without an id of its own is identified by. The ce_id of the redriven record
// names the dead letter, and the sender may have repeated the signal under its own ce_id.
func keepSignalID(letter *Record, kept map[string]string) map[string]string {
	if kept == nil {
		kept = map[string]string{}
	}
	if kept[HeaderSignal] == "" {
		kept[HeaderSignal] = kept[HeaderID]
	}
	if kept[HeaderSignal] == "" {
		origin, _ := letter.Header(HeaderOrigin)
		rest, offset, _ := cutLast(origin)
		_, partition, _ := cutLast(rest)
		kept[HeaderSignal] = Signals.String() + "/" + partition + "/" + offset
	}
	return kept
}

func renotify(r Record, source string, letter *Record, kept map[string]string) (Record, error) {
	if kept[HeaderReplyTo] == "" {
		return r, errors.New("the dead letter doesn't keep its headers, which say whom it tells")
	}
	r.Headers = redriven(letter, source, TypeNotification, kept)
	if n, err := DecodeNotification(&r); err != nil || n.Task != string(r.Key) {
		return r, errors.New("it is no notification of the task that is its key")
	}
	return r, nil
}

// redriven returns the headers of a redriven record. A notification keeps its ce_id, since it is the same notification.
func redriven(letter *Record, source, ceType string, kept map[string]string) []Header {
	id := redriveID + strconv.Itoa(int(letter.Partition)) + "/" + strconv.FormatInt(letter.Offset, 10)
	if kept[HeaderReplyTo] != "" {
		id = kept[HeaderID]
	}
	if t := kept[HeaderType]; t != "" {
		ceType = t
	}
	h := CloudHeaders(ceType, source, id)
	if t := kept[HeaderContentType]; t != "" {
		h[4].Value = []byte(t)
	}
	for _, name := range keptHeaders[3:] { // after those of CloudHeaders
		if v, ok := kept[name]; ok {
			h = append(h, Header{name, []byte(v)})
		}
	}
	return h
}
