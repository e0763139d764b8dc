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
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/redrive"
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

// ViewAlert converts the alert of a record. If it has no instant, it gets the record's.
func ViewAlert(a *events.Alert, r *events.Record) consoleapi.Alert {
	if a.At.IsZero() {
		a.At = r.Time
	}
	return consoleapi.Alert{At: events.InstantText(a.At), Task: a.Task, Seq: a.Seq, Code: a.Code, Step: a.Step, Message: a.Message,
		Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10)}
}

// viewHold converts an alert of the index.
func viewHold(a *projections.Alert) consoleapi.Alert {
	return consoleapi.Alert{At: events.InstantText(a.At), Task: a.Task, Seq: a.Seq, Code: a.Code, Step: a.Step, Message: a.Message,
		Partition: a.Partition, Offset: strconv.FormatInt(a.Offset, 10), EndedAt: events.InstantText(a.EndedAt), EndedBy: a.EndedBy}
}

func alertBytes(v *consoleapi.Alert) int {
	return noticeBaseBytes + jsonBytes(v.Task, v.Code, v.Step, v.Message)
}

type alertsRequest struct {
	Since string `query:"since" jsonschema:"A duration before now (10m), or an instant. Absent: open alerts of any age, and others of the last 24 hours."`
	noticesRequest
	Open bool `query:"open" jsonschema:"true: only alerts of tasks that are still held."`
	listRequest
}

// alerts returns the alerts of held tasks, from the index, and those that belong to no event, from their topic.
func (c *call) alerts(in *alertsRequest) (*consoleapi.AlertPage, error) {
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
	found := newest[consoleapi.Alert]{window: asked}
	for i := range held.Alerts {
		v := viewHold(&held.Alerts[i])
		found.add(placeOfHold(&held.Alerts[i]), alertBytes(&v), v)
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
	return &consoleapi.AlertPage{Alerts: list, Left: left, NextPageToken: next, AsOf: asOf(held.AsOf), Incomplete: lacks}, nil
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
func (c *call) alertsOfNoEvent(since time.Time, found *newest[consoleapi.Alert]) (leaderless []int32, err error) {
	if err := c.acquireTopicRead(); err != nil {
		return nil, err
	}
	leaderless, err = c.cfg.Log.Alerts(c.r.Context(), since, func(r *events.Record) {
		a, err := events.DecodeAlert(r)
		if err != nil || a.Seq != 0 {
			return // `waybill alerts` tells of what is none
		}
		v := ViewAlert(a, r)
		found.add(placeOfAlert(&v), alertBytes(&v), v)
	})
	if err != nil {
		return nil, unavailable("the alerts: %v", err)
	}
	return leaderless, nil
}

func deadletterBytes(d *consoleapi.Deadletter) int {
	n := noticeBaseBytes + jsonBytes(d.Reason, d.Detail, d.Origin, d.Key, d.SHA256, d.Value)
	for name, value := range d.Headers {
		n += jsonBytes(name, value) + len(`"":"",`)
	}
	return n
}

type deadlettersRequest struct {
	Since string `query:"since" jsonschema:"A duration before now (10m), or an instant. Absent: 24h."`
	noticesRequest
	Reason string `query:"reason" jsonschema:"Only dead letters with this reason, or with one of several, with commas between them."`
}

func (c *call) deadletters(in *deadlettersRequest) (*consoleapi.DeadletterPage, error) {
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
			return nil, badRequest("reason %q: one of %v, or several with commas", consoleapi.Printable(reason), events.Reasons)
		}
	}
	if err := c.acquireTopicRead(); err != nil {
		return nil, err
	}
	found, later := newest[consoleapi.Deadletter]{window: asked}, redrive.Later{}
	leaderless, err := c.cfg.Log.Deadletters(c.r.Context(), asked.since, func(r *events.Record) {
		later.Add(r)
		if d := ViewDeadletter(r); len(reasons) == 0 || slices.Contains(reasons, d.Reason) {
			found.add(noticePlace{r.Time.UnixMilli(), false, r.Partition, r.Offset}, deadletterBytes(&d), d)
		}
	})
	if err != nil {
		return nil, unavailable("the dead letters: %v", err)
	}
	list, left, next := found.page()
	for i := range list {
		list[i].Fate = c.fate(&list[i], &later)
	}
	lacks := make([]consoleapi.Incomplete, len(leaderless))
	for i, p := range leaderless {
		lacks[i] = consoleapi.Incomplete{Partition: p, Why: consoleapi.NoLeader}
	}
	return &consoleapi.DeadletterPage{Deadletters: list, Left: left, NextPageToken: next, Incomplete: lacks}, nil
}

// ViewDeadletter converts a record of the dead letters.
func ViewDeadletter(r *events.Record) consoleapi.Deadletter {
	d := consoleapi.Deadletter{At: events.InstantText(r.Time), Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10), Headers: map[string]string{}}
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
