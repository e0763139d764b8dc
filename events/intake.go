package events

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// HeaderIntake is the header of a record that an intake made of a record of another topic, and of its dead letter. Its
// value is that record's place (IntakeRef). Any writer of an inbox can forge it.
const HeaderIntake = "waybill_intake"

// HeaderTime is the header of an intake's dead letter with the timestamp of the original: milliseconds since 1970.
const HeaderTime = "waybill_time"

// HeaderIncomplete is the header of an intake's dead letter that doesn't have all of the original's key or headers. Its value
// names what lacks, separated by commas: "key", "headers". HeaderSize tells whether the value is complete.
const HeaderIncomplete = "waybill_incomplete"

// IntakeRef is the place of the record that an intake made a submission or a signal of.
type IntakeRef struct {
	Name      string // of the intake
	Topic     string
	TopicID   string // a recreated topic has another one; empty: unknown
	Partition int32
	Offset    int64
}

// String returns "<name>/<topic>/<topic id>/<partition>/<offset>".
func (r *IntakeRef) String() string { return string(r.append(nil)) }

func (r *IntakeRef) append(dst []byte) []byte {
	dst = append(append(append(dst, r.Name...), '/'), r.Topic...)
	dst = append(append(append(dst, '/'), r.TopicID...), '/')
	dst = append(strconv.AppendInt(dst, int64(r.Partition), 10), '/')
	return strconv.AppendInt(dst, r.Offset, 10)
}

// Header returns the header of the record that the intake makes.
func (r *IntakeRef) Header() Header { return Header{HeaderIntake, r.append(nil)} }

// IntakeOf returns the place that a record's header names; nil: it has none, or it can't be read.
func IntakeOf(r *Record) *IntakeRef {
	text := r.header(HeaderIntake)
	if len(text) == 0 {
		return nil
	}
	parts := strings.Split(string(text), "/")
	const fields = 5
	if len(parts) != fields || len(text) > 3*MaxNameBytes || CheckDefinitionName(parts[0]) != nil || !TopicName(parts[1]) || !utf8.ValidString(parts[2]) {
		return nil
	}
	p, perr := strconv.ParseInt(parts[3], 10, 32)
	offset, oerr := strconv.ParseInt(parts[4], 10, 64)
	if perr != nil || oerr != nil || p < 0 || offset < 0 {
		return nil
	}
	return &IntakeRef{Name: parts[0], Topic: parts[1], TopicID: parts[2], Partition: int32(p), Offset: offset}
}

func (r *IntakeRef) fields(c *codec) {
	c.str("name", &r.Name)
	c.str("topic", &r.Topic)
	c.str("topic_id", &r.TopicID)
	partition := int(r.Partition)
	c.int("partition", &partition)
	r.Partition = int32(partition)
	c.int64("offset", &r.Offset)
}

// IntakeView is where a task came from, in a TaskView.
type IntakeView struct {
	Name      string `json:"name" jsonschema:"The name of the intake."`
	Topic     string `json:"topic" jsonschema:"The topic of the record."`
	Partition int32  `json:"partition" jsonschema:"The partition of the record."`
	Offset    string `json:"offset" jsonschema:"The offset of the record. It is a string, since it can exceed 2^53."`
}

func (r *IntakeRef) view() *IntakeView {
	if r == nil {
		return nil
	}
	return &IntakeView{r.Name, r.Topic, r.Partition, strconv.FormatInt(r.Offset, 10)}
}

// IntakeDeadletter makes the dead letter of a record that an intake can't use. It keeps all headers of the original that
// are UTF-8, within MaxKeptHeadersBytes, since the mapping may read them. HeaderIncomplete says what it can't keep.
func IntakeDeadletter(ns Namespace, source string, r *Record, ref *IntakeRef, u *Unusable) Record {
	letter := Deadletter(ns, source, r, u)
	letter.Headers = append(withoutHeader(letter.Headers, HeaderHeaders), ref.Header(), Header{HeaderTime, strconv.AppendInt(nil, r.Time.UnixMilli(), 10)})
	var incomplete []string
	if len(letter.Key) < len(r.Key) {
		incomplete = append(incomplete, "key")
	}
	switch kept := HeadersJSON(r.Headers); {
	case len(kept) >= MaxKeptHeadersBytes:
		incomplete = append(incomplete, "headers")
	case len(kept) > len("{}"):
		letter.Headers = append(letter.Headers, Header{HeaderHeaders, kept})
	}
	if len(incomplete) > 0 {
		letter.Headers = append(letter.Headers, Header{HeaderIncomplete, []byte(strings.Join(incomplete, ","))})
	}
	return letter
}

func withoutHeader(h []Header, key string) []Header {
	kept := h[:0]
	for _, x := range h {
		if x.Key != key {
			kept = append(kept, x)
		}
	}
	return kept
}

// HeadersJSON returns headers as a JSON object of texts. Those that aren't UTF-8 are left out. Of the same name, the last
// one counts.
func HeadersJSON(headers []Header) json.RawMessage {
	if len(headers) == 0 {
		return json.RawMessage("{}")
	}
	b := []byte{'{'}
	for i := range headers {
		h := &headers[i]
		if !utf8.ValidString(h.Key) || !utf8.Valid(h.Value) || repeated(headers[i+1:], h.Key) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(jsonscan.AppendString(b, h.Key), ':')
		b = jsonscan.AppendString(b, string(h.Value))
	}
	return append(b, '}')
}

func repeated(headers []Header, key string) bool {
	for i := range headers {
		if headers[i].Key == key && utf8.Valid(headers[i].Value) {
			return true
		}
	}
	return false
}

// IntakeOfDeadletter returns the name of the intake that a dead letter belongs to: the intake couldn't map its record, or a
// scheduler couldn't use what the intake made of it. Empty: none.
func IntakeOfDeadletter(letter *Record) string {
	if ref := IntakeOf(letter); ref != nil {
		return ref.Name
	}
	kept, err := keptOf(letter)
	if err != nil || kept[HeaderIntake] == "" {
		return ""
	}
	ref := IntakeOf(&Record{Headers: []Header{{HeaderIntake, []byte(kept[HeaderIntake])}}})
	if ref == nil {
		return ""
	}
	return ref.Name
}

// IntakeOriginal returns the record that an intake's dead letter is about, to be mapped again. ref is nil if the dead
// letter is of no intake. The error says why the original isn't known.
func IntakeOriginal(letter *Record) (original *Record, ref *IntakeRef, err error) {
	if ref = IntakeOf(letter); ref == nil {
		return nil, nil, nil
	}
	origin, _ := letter.Header(HeaderOrigin)
	original = &Record{Topic: ref.Topic, Partition: ref.Partition, Offset: ref.Offset, Key: letter.Key, Value: letter.Value}
	if origin != Origin(original) {
		return nil, nil, nil // the dead letter of what an intake wrote to an inbox
	}
	if err := whole(letter); err != nil {
		return nil, ref, err
	}
	if lacks, incomplete := letter.Header(HeaderIncomplete); incomplete {
		return nil, ref, fmt.Errorf("the dead letter doesn't keep all of the original: its %s", strings.ReplaceAll(lacks, ",", " and "))
	}
	kept, err := keptOf(letter)
	if err != nil {
		return nil, ref, err
	}
	for name, value := range kept {
		original.Headers = append(original.Headers, Header{name, []byte(value)})
	}
	text, _ := letter.Header(HeaderTime)
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, ref, fmt.Errorf("%s %q is no time", HeaderTime, text)
	}
	original.Time = time.UnixMilli(at).UTC()
	return original, ref, nil
}
