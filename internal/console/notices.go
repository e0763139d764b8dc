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

// topicReadsMax bounds the concurrent requests that read a whole topic. Each holds up to two pages in memory until
// it is answered.
const topicReadsMax = 4

// acquireTopicRead waits for a slot to read a topic. The call holds it until it is answered.
func (c *call) acquireTopicRead() error {
	within, cancel := context.WithTimeout(c.r.Context(), c.timeouts.topicRead)
	defer cancel()
	select {
	case c.topicReadSlots <- struct{}{}:
		c.readingTopic = true
		return nil
	case <-within.Done():
		return unavailable("%d lists of alerts or dead letters are being read, the maximum; retry later", topicReadsMax)
	}
}

// releaseSlots releases the slots of a call that was answered.
func (c *call) releaseSlots() {
	if c.readingTopic {
		<-c.topicReadSlots
	}
}

// AlertView is an alert. With a Seq it belongs to an event of its task, and Partition and Offset are those of the
// event; otherwise they are those of the record in the topic of alerts.
type AlertView struct {
	At        *string `json:"at" format:"date-time" jsonschema:"When the alert was raised."`
	Task      string  `json:"task,omitempty" jsonschema:"The held task. Absent: the alert is not about a task."`
	Seq       uint64  `json:"seq,omitempty" jsonschema:"The seq of the event that the alert belongs to. Absent: it belongs to no event, and its end isn't known."`
	Code      string  `json:"code" jsonschema:"The code of the alert."`
	Step      string  `json:"step,omitempty" jsonschema:"The held step. Absent: none."`
	Message   string  `json:"message" jsonschema:"What is wrong, for people."`
	Partition int32   `json:"partition" jsonschema:"The partition of the event. Without seq, that of the record in waybill.alerts."`
	Offset    string  `json:"offset" jsonschema:"The offset of the event, as a string. Without seq, that of the record in waybill.alerts."`
	EndedAt   *string `json:"ended_at,omitempty" format:"date-time" jsonschema:"When the hold ended. Absent: the task is still held, or the end isn't known."`
	EndedBy   string  `json:"ended_by,omitempty" jsonschema:"The type of the event that ended the hold."`
}

// ViewAlert converts the alert of a record. If it has no instant, it gets the record's.
func ViewAlert(a *events.Alert, r *events.Record) AlertView {
	if a.At.IsZero() {
		a.At = r.Time
	}
	return AlertView{At: events.InstantText(a.At), Task: a.Task, Seq: a.Seq, Code: a.Code, Step: a.Step, Message: a.Message,
		Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10)}
}

// viewHold converts an alert of the index.
func viewHold(a *projections.Alert) AlertView {
	return AlertView{At: events.InstantText(a.At), Task: a.Task, Seq: a.Seq, Code: a.Code, Step: a.Step, Message: a.Message,
		Partition: a.Partition, Offset: strconv.FormatInt(a.Offset, 10), EndedAt: events.InstantText(a.EndedAt), EndedBy: a.EndedBy}
}

func (v *AlertView) bytes() int {
	return noticeBaseBytes + jsonBytes(v.Task, v.Code, v.Step, v.Message)
}

type alertList struct {
	Alerts        []AlertView   `json:"alerts" jsonschema:"The alerts, the newest first."`
	Left          int64         `json:"left_off" jsonschema:"The number of alerts after this page."`
	NextPageToken string        `json:"next_page_token" jsonschema:"The page_token of the next page. Empty: this is the last one."`
	AsOf          []events.AsOf `json:"as_of" jsonschema:"The part of each partition that the answer reflects."`
	Incomplete    []Incomplete  `json:"incomplete" jsonschema:"What the answer lacks. Empty: nothing."`
}

type alertsRequest struct {
	Since string `query:"since" jsonschema:"A duration before now (10m), or an instant. Absent: open alerts of any age, and others of the last 24 hours."`
	noticesRequest
	Open bool `query:"open" jsonschema:"true: only alerts of tasks that are still held."`
	listRequest
}

// alerts returns the alerts of held tasks, from the index, and those that belong to no event, from their topic.
func (c *call) alerts(in *alertsRequest) (*alertList, error) {
	open := ""
	if in.Open {
		open = "open"
	}
	asked, err := c.window(&in.noticesRequest, in.Since, open)
	if err != nil {
		return nil, err
	}
	q := alertQuery(in, asked)
	floor, leaderless, err := c.minOffsets(in.MinOffset)
	if err != nil {
		return nil, err
	}
	progress, err := c.await(c.r.Context(), floor)
	if err != nil {
		return nil, err
	}
	held, err := c.cfg.Index.Alerts(startedPartitions(progress), q)
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
	lacks, err := c.incompletePartitions(progress, leaderless)
	if err != nil {
		return nil, err
	}
	list, left, next := found.page()
	return &alertList{list, left, next, asOf(held.AsOf), lacks}, nil
}

// alertQuery is the query of the index. Without since, open alerts of any age are listed.
func alertQuery(in *alertsRequest, asked *window) projections.AlertQuery {
	q := projections.AlertQuery{PastSince: asked.since, Limit: asked.limit, OpenOnly: in.Open}
	if asked.after != nil {
		q.After = asked.after.alertPlace()
	}
	if in.Since != "" {
		q.OpenSince = asked.since
	}
	return q
}

// alertsOfNoEvent adds alerts that belong to no event, such as those of unusable definitions and topics.
// leaderless are partitions that may have more.
func (c *call) alertsOfNoEvent(since time.Time, found *newest[AlertView]) (leaderless []int32, err error) {
	if err := c.acquireTopicRead(); err != nil {
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

// DeadletterView is a record that could not be used. Value is the original, which may have been cut: UTF-8 text,
// or else base64, according to Encoding.
type DeadletterView struct {
	At        *string           `json:"at" format:"date-time" jsonschema:"When the record was rejected."`
	Reason    string            `json:"reason" jsonschema:"The reason, as a code."`
	Detail    string            `json:"detail" jsonschema:"What is wrong with the record, for people."`
	Origin    string            `json:"origin" jsonschema:"Where the record was: TOPIC/PARTITION/OFFSET."`
	Key       string            `json:"key" jsonschema:"The key of the record."`
	Size      int64             `json:"size" jsonschema:"The size of the record's value, in bytes."`
	SHA256    string            `json:"sha256" jsonschema:"The SHA-256 of the record's value."`
	Partition int32             `json:"partition" jsonschema:"The partition of waybill.deadletters."`
	Offset    string            `json:"offset" jsonschema:"The offset in waybill.deadletters, as a string."`
	Headers   map[string]string `json:"headers" jsonschema:"The headers of the dead letter."`
	Encoding  string            `json:"encoding" enum:"utf8,base64" jsonschema:"How value has the bytes: as they are (utf8), or encoded (base64)."`
	Value     string            `json:"value" jsonschema:"The record's value. A large one is cut."`
}

func (d *DeadletterView) bytes() int {
	n := noticeBaseBytes + jsonBytes(d.Reason, d.Detail, d.Origin, d.Key, d.SHA256, d.Value)
	for name, value := range d.Headers {
		n += jsonBytes(name, value) + len(`"":"",`)
	}
	return n
}

type deadletterList struct {
	Deadletters   []DeadletterView `json:"deadletters" jsonschema:"The dead letters, the newest first."`
	Left          int64            `json:"left_off" jsonschema:"The number of dead letters after this page."`
	NextPageToken string           `json:"next_page_token" jsonschema:"The page_token of the next page. Empty: this is the last one."`
	Incomplete    []Incomplete     `json:"incomplete" jsonschema:"What the list lacks, by partitions of waybill.deadletters. Empty: nothing."`
}

type deadlettersRequest struct {
	Since string `query:"since" jsonschema:"A duration before now (10m), or an instant. Absent: 24h."`
	noticesRequest
	Reason string `query:"reason" jsonschema:"Only dead letters with this reason, or with one of several, with commas between them."`
}

func (c *call) deadletters(in *deadlettersRequest) (*deadletterList, error) {
	asked, err := c.window(&in.noticesRequest, in.Since, in.Reason)
	if err != nil {
		return nil, err
	}
	var reasons []string
	if in.Reason != "" {
		reasons = strings.Split(in.Reason, ",")
	}
	for _, reason := range reasons {
		if !slices.Contains(events.Reasons, events.Reason(reason)) {
			return nil, badRequest("reason %q: one of %v, or several with commas", printable(reason), events.Reasons)
		}
	}
	if err := c.acquireTopicRead(); err != nil {
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
	return &deadletterList{list, left, next, lacks}, nil
}

// ViewDeadletter converts a record of the dead letters.
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
