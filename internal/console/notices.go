package console

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// topicReadsMax bounds the answers that are made of a topic, read through, at once: each holds a
// page, and what came since it was cut, until it is written.
const topicReadsMax = 4

// readsTopic waits for room to read a topic. The room is kept until the request is answered.
func (c *call) readsTopic() error {
	within, cancel := context.WithTimeout(c.r.Context(), c.within.turn)
	defer cancel()
	select {
	case c.reads <- struct{}{}:
		c.reading = true
		return nil
	case <-within.Done():
		return unavailable("%d lists of alerts or dead letters are being read, as many as may be", topicReadsMax)
	}
}

// over gives back what a call that is answered has.
func (c *call) over() {
	if c.reading {
		<-c.reads
	}
}

// AlertView is an alert. One with a Seq is that of an event of its task, and Partition
// and Offset are where that stands in events; else they are those of the record on the
// topic of alerts.
type AlertView struct {
	At        *string `json:"at"`
	Task      string  `json:"task,omitempty"`
	Seq       uint64  `json:"seq,omitempty"`
	Code      string  `json:"code"`
	Step      string  `json:"step,omitempty"`
	Message   string  `json:"message"`
	Partition int32   `json:"partition"`
	Offset    string  `json:"offset"`
	// EndedAt is when the task was held no more, and EndedBy the type of the event that
	// says so; absent: it is held, or nothing is known of an end.
	EndedAt *string `json:"ended_at,omitempty"`
	EndedBy string  `json:"ended_by,omitempty"`
}

// ViewAlert shows an alert that a record holds. One without an instant gets the
// record's.
func ViewAlert(a *events.Alert, r *events.Record) AlertView {
	if a.At.IsZero() {
		a.At = r.Time
	}
	return AlertView{At: events.InstantText(a.At), Task: a.Task, Seq: a.Seq, Code: a.Code, Step: a.Step, Message: a.Message,
		Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10)}
}

// viewHold shows an alert that the index keeps.
func viewHold(a *projections.Alert) AlertView {
	return AlertView{At: events.InstantText(a.At), Task: a.Task, Seq: a.Seq, Code: a.Code, Step: a.Step, Message: a.Message,
		Partition: a.Partition, Offset: strconv.FormatInt(a.Offset, 10), EndedAt: events.InstantText(a.EndedAt), EndedBy: a.EndedBy}
}

func (v *AlertView) bytes() int {
	return noticeLeastBytes + jsonBytes(v.Task, v.Code, v.Step, v.Message)
}

type alertList struct {
	Alerts []AlertView `json:"alerts"`
	Left   int64       `json:"left_off"` // how many more there are
	// NextPageToken continues the list; empty: there is no more.
	NextPageToken string        `json:"next_page_token"`
	AsOf          []events.AsOf `json:"as_of"`
	Incomplete    []Incomplete  `json:"incomplete"`
}

// alerts answers with those of held tasks, from the index, which knows whether they are
// open, and with those that no event is of, from their topic.
func (c *call) alerts() (any, error) {
	if err := c.knows("since", "limit", "open", "page_token", "min_offset"); err != nil {
		return nil, err
	}
	asked, err := c.window("open")
	if err != nil {
		return nil, err
	}
	q, err := c.alertQuery(asked)
	if err != nil {
		return nil, err
	}
	floor, leaderless, err := c.minOffsets()
	if err != nil {
		return nil, err
	}
	progress, err := c.await(c.r.Context(), floor)
	if err != nil {
		return nil, err
	}
	held, err := c.cfg.Index.Alerts(begun(progress), q)
	if err != nil {
		return nil, err
	}
	found := newest[AlertView]{window: asked}
	for i := range held.Alerts {
		v := viewHold(&held.Alerts[i])
		found.add(placeOfHold(&held.Alerts[i]), v.bytes(), v)
	}
	found.seen = held.Count
	if !q.OpenOnly {
		of, err := c.alertsOfNoEvent(asked.since, &found)
		if err != nil {
			return nil, err
		}
		leaderless = append(leaderless, of...)
	}
	lacks, err := c.incomplete(progress, leaderless)
	if err != nil {
		return nil, err
	}
	list, left, next := found.page()
	return alertList{list, left, next, asOf(held.AsOf), lacks}, nil
}

// alertQuery reads open. Without since open alerts of any age are asked for.
func (c *call) alertQuery(asked *window) (q projections.AlertQuery, err error) {
	q = projections.AlertQuery{PastSince: asked.since, Limit: asked.limit}
	if asked.after != nil {
		q.After = asked.after.ofHolds()
	}
	values := c.r.URL.Query()
	if values.Get("since") != "" {
		q.OpenSince = asked.since
	}
	switch text := values.Get("open"); text {
	case "", "false":
	case "true":
		q.OpenOnly = true
	default:
		return q, badRequest("open %q: true or false", printable(text))
	}
	return q, nil
}

// alertsOfNoEvent adds those that no event is of: of definitions and topics that can't be
// used. leaderless are partitions of which there may be more.
func (c *call) alertsOfNoEvent(since time.Time, found *newest[AlertView]) (leaderless []int32, err error) {
	if err := c.readsTopic(); err != nil {
		return nil, err
	}
	leaderless, err = c.cfg.Log.Alerts(c.r.Context(), since, func(r *events.Record) {
		a, err := events.DecodeAlert(r)
		if err != nil || a.Seq != 0 {
			return // `waybill alerts` tells of what is none
		}
		v := ViewAlert(a, r)
		found.add(placeOfAlert(&v), v.bytes(), v)
	})
	if err != nil {
		return nil, unavailable("the alerts: %v", err)
	}
	return leaderless, nil
}

// DeadletterView is a record that could not be used. Value is the original, as far
// as it was kept: as text where it is UTF-8, else in base64, as the encoding says.
type DeadletterView struct {
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

func (d *DeadletterView) bytes() int {
	n := noticeLeastBytes + jsonBytes(d.Reason, d.Detail, d.Origin, d.Key, d.SHA256, d.Value)
	for name, value := range d.Headers {
		n += jsonBytes(name, value) + len(`"":"",`)
	}
	return n
}

type deadletterList struct {
	Deadletters   []DeadletterView `json:"deadletters"`
	Left          int64            `json:"left_off"`
	NextPageToken string           `json:"next_page_token"`
	Incomplete    []Incomplete     `json:"incomplete"` // of partitions of the topic of dead letters
}

func (c *call) deadletters() (any, error) {
	if err := c.knows("since", "limit", "reason", "page_token"); err != nil {
		return nil, err
	}
	asked, err := c.window("reason")
	if err != nil {
		return nil, err
	}
	var reasons []string
	if text := c.r.URL.Query().Get("reason"); text != "" {
		reasons = strings.Split(text, ",")
	}
	for _, reason := range reasons {
		if !slices.Contains(events.Reasons, events.Reason(reason)) {
			return nil, badRequest("reason %q: one of %v, or several with commas", printable(reason), events.Reasons)
		}
	}
	if err := c.readsTopic(); err != nil {
		return nil, err
	}
	found := newest[DeadletterView]{window: asked}
	leaderless, err := c.cfg.Log.Deadletters(c.r.Context(), asked.since, func(r *events.Record) {
		if d := ViewDeadletter(r); len(reasons) == 0 || slices.Contains(reasons, d.Reason) {
			found.add(noticePlace{r.Time.UnixMilli(), false, r.Partition, r.Offset}, d.bytes(), d)
		}
	})
	if err != nil {
		return nil, unavailable("the dead letters: %v", err)
	}
	list, left, next := found.page()
	lacks := make([]Incomplete, len(leaderless))
	for i, p := range leaderless {
		lacks[i] = Incomplete{p, NoLeader, 0}
	}
	return deadletterList{list, left, next, lacks}, nil
}

// ViewDeadletter shows a record of the dead letters.
func ViewDeadletter(r *events.Record) DeadletterView {
	d := DeadletterView{At: events.InstantText(r.Time), Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10), Headers: map[string]string{}}
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
