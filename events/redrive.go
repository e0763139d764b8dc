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
)

// HeaderHeaders are, of a dead letter, the original's headers that say what it is: a
// JSON object of texts. It is left out where there are none, or more than
// MaxKeptHeadersBytes.
const HeaderHeaders = "waybill_headers"

// MaxKeptHeadersBytes bounds HeaderHeaders.
const MaxKeptHeadersBytes = 4 << 10

// keptHeaders are the headers that the contracts of inboxes and notifications name. Where a record
// has been (hop, origin) isn't kept: a redrive starts over.
var keptHeaders = [...]string{HeaderType, HeaderID, HeaderContentType, HeaderTraceparent, HeaderRequest, HeaderOutcome, HeaderEffect, HeaderReplyTo}

// keepHeaders writes the headers of an original for its dead letter; nil: none.
func keepHeaders(r *Record) []byte {
	var kept []byte
	for _, name := range keptHeaders {
		v, ok := r.Header(name)
		if !ok || !utf8.ValidString(v) {
			continue
		}
		kept = append(appendQuoted(append(kept, ','), name), ':')
		kept = appendQuoted(kept, v)
	}
	if kept == nil || len(kept) >= MaxKeptHeadersBytes {
		return nil
	}
	kept[0] = '{'
	return append(kept, '}')
}

// Redrive makes the record that writes a dead letter's original to its topic again, after an
// operator removed the reason. Its bytes and the headers that say what it is are the original's.
// Its ce_id names the dead letter. So a dead letter that is redriven twice is the same submission,
// reply or command twice, which changes nothing.
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
	return Record{}, fmt.Errorf("it came from %q, which is no inbox of the namespace %s, nor its notifications", topic, ns)
}

// redriveID begins the ce_id of what is written again.
const redriveID = "redrive/"

// Redriven reports whether a record of an inbox claims to be a redriven dead letter.
func Redriven(r *Record) bool { return bytes.HasPrefix(r.header(HeaderID), []byte(redriveID)) }

// RedriveOf returns the dead letter of which another is a failed redrive. Anyone who can write to
// the inbox can claim that; equal hashes prove it. ok is false for a dead letter that is no
// redrive.
func RedriveOf(letter *Record) (partition int32, offset int64, ok bool) {
	kept, err := keptOf(letter)
	if err != nil {
		return 0, 0, false
	}
	place, again := strings.CutPrefix(kept[HeaderID], redriveID)
	at, err := ParseCause(Tasks.String() + "/" + place) // which is written the same way
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

// keptOf reads the original's headers; nil: none are kept.
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

// inboxTypes are the ce_types of what comes in.
var inboxTypes = [Inboxes]string{Controls: TypeControl, Replies: TypeReply, Recoveries: TypeRecovery, Tasks: TypeSubmission}

func redriveInput(r Record, inbox Inbox, source string, letter *Record, kept map[string]string) (Record, error) {
	reason, _ := letter.Header(HeaderReason)
	delete(kept, HeaderReplyTo) // which only a notification has
	switch {
	case inbox == Recoveries:
		return r, errors.New("a supervisor asks for a recovery again, as long as its timer is armed")
	case inbox == Replies && kept == nil:
		return r, errors.New("the dead letter doesn't keep its headers, which say whose reply it is")
	case Reason(reason) == ReasonIDConflict:
		return r, errors.New("the id is another submission's; submit it under another id")
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

// redriven are the headers of a redriven record. A notification keeps its ce_id, since it is the
// same notification.
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
