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
	return c.acquireSlot(c.topicReadSlots, "lists of alerts or dead letters")
}

// acquireSlot waits for one of some slots. The call holds it until it is answered. what is what the slots bound.
func (c *call) acquireSlot(slots chan struct{}, what string) error {
	within, cancel := context.WithTimeout(c.r.Context(), c.timeouts.slot)
	defer cancel()
	select {
	case slots <- struct{}{}:
		c.slots = append(c.slots, slots)
		return nil
	case <-within.Done():
		return unavailable("%d %s are being read, the maximum; retry later", cap(slots), what)
	}
}

// releaseSlots releases the slots of a call that was answered.
func (c *call) releaseSlots() {
	for _, slots := range c.slots {
		<-slots
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
	Since string `query:"since" jsonschema:"A duration before now (10m), or an instant. An alert that has ended counts by its end. Absent: open alerts of any age, and those that ended in the last 24 hours."`
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
	progress, leaderless, err := c.awaitOffsets(c.r.Context(), in.MinOffset)
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
		of, err := c.alertsOfNoEvent(in, asked.since, &found)
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
	return &consoleapi.AlertPage{Alerts: list, Left: left, NextPageToken: next, AsOf: reflectedOffsets(held.AsOf), Incomplete: lacks}, nil
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
func (c *call) alertsOfNoEvent(in *alertsRequest, since time.Time, found *newest[consoleapi.Alert]) (leaderless []int32, err error) {
	add := func(r *events.Record) {
		a, err := events.DecodeAlert(r)
		if err != nil || a.Seq != 0 {
			return // `waybill alerts` tells of what is none
		}
		v := ViewAlert(a, r)
		found.add(placeOfAlert(&v), alertBytes(&v), v)
	}
	if in.Since == "" || c.recentAlerts.isRead() {
		if leaderless, err = c.recentAlerts.refresh(c.r.Context(), c.timeouts.answer); err != nil {
			return nil, unavailable("can't read the alerts: %v", err)
		}
		if all, ok := c.recentAlerts.since(since); ok {
			for _, r := range all {
				add(r)
			}
			return leaderless, nil
		}
	}
	if err := c.acquireTopicRead(); err != nil {
		return nil, err
	}
	reached, err := c.cfg.Log.Alerts(c.r.Context(), TopicPosition{Since: since}, add)
	if err != nil {
		return nil, unavailable("can't read the alerts: %v", err)
	}
	return reached.Leaderless, nil
}

// ofNoEvent reports whether a record is an alert that belongs to no event.
func ofNoEvent(r *events.Record) (none recentLabels, kept bool) {
	a, err := events.DecodeAlert(r)
	return none, err == nil && a.Seq == 0
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
	Reason string         `query:"reason" jsonschema:"Only dead letters with this reason, or with one of several, with commas between them."`
	Intake definitionName `query:"intake" jsonschema:"Only dead letters of this intake: records that it couldn't map, and its submissions and signals that a scheduler couldn't use."`
}

func (c *call) deadletters(in *deadlettersRequest) (*consoleapi.DeadletterPage, error) {
	asked, err := c.window(&in.noticesRequest, in.Since, in.Reason+"\n"+string(in.Intake))
	if err != nil {
		return nil, err
	}
	var reasons []string
	if in.Reason != "" {
		reasons = strings.Split(in.Reason, ",")
	}
	for _, reason := range reasons {
		if !slices.Contains(events.Reasons, events.Reason(reason)) {
			return nil, badRequest("reason %q: must be one of %v, or several with commas", consoleapi.Printable(reason), events.Reasons)
		}
	}
	wanted := func(l recentLabels) bool {
		return (len(reasons) == 0 || slices.Contains(reasons, l.reason)) && (in.Intake == "" || l.intake == string(in.Intake))
	}
	if in.Since == "" || c.recentLetters.isRead() {
		leaderless, err := c.recentLetters.refresh(c.r.Context(), c.timeouts.answer)
		if err != nil {
			return nil, unavailable("can't read the dead letters: %v", err)
		}
		if l := c.recentDeadletters(asked, wanted); l != nil {
			l.Incomplete = withoutLeaders(leaderless)
			return l, nil
		}
	}
	return c.readDeadletters(asked, func(r *events.Record) bool {
		labels, _ := deadletterLabels(r)
		return wanted(labels)
	})
}

// recentDeadletters returns a page of the recent dead letters; nil: it needs some that aren't known.
func (c *call) recentDeadletters(asked *window, wanted func(recentLabels) bool) *consoleapi.DeadletterPage {
	found, whole, full := newest[consoleapi.Deadletter]{window: asked}, true, false
	known := c.recentLetters.newestFirst(asked.since, func(r *recentRecord, later *redrive.Later) bool {
		switch {
		case !wanted(r.recentLabels) || !found.follows(r.place):
		case full:
			found.seen++
		case r.record == nil:
			whole = false
		default:
			d := ViewDeadletter(r.record)
			d.Fate = c.fate(&d, later)
			full = !found.addNext(r.place, deadletterBytes(&d), d)
		}
		return whole
	})
	if !known || !whole {
		return nil
	}
	l := &consoleapi.DeadletterPage{}
	l.Deadletters, l.Left, l.NextPageToken = found.page()
	return l
}

// readDeadletters returns a page from the topic.
func (c *call) readDeadletters(asked *window, wanted func(r *events.Record) bool) (*consoleapi.DeadletterPage, error) {
	if err := c.acquireTopicRead(); err != nil {
		return nil, err
	}
	found, later := newest[consoleapi.Deadletter]{window: asked}, redrive.Later{}
	reached, err := c.cfg.Log.Deadletters(c.r.Context(), TopicPosition{Since: asked.since}, func(r *events.Record) {
		later.Add(r)
		if wanted(r) {
			d := ViewDeadletter(r)
			found.add(noticePlace{r.Time.UnixMilli(), false, r.Partition, r.Offset}, deadletterBytes(&d), d)
		}
	})
	if err != nil {
		return nil, unavailable("can't read the dead letters: %v", err)
	}
	l := &consoleapi.DeadletterPage{Incomplete: withoutLeaders(reached.Leaderless)}
	l.Deadletters, l.Left, l.NextPageToken = found.page()
	for i := range l.Deadletters {
		l.Deadletters[i].Fate = c.fate(&l.Deadletters[i], &later)
	}
	return l, nil
}

// withoutLeaders reports partitions of a topic without a leader.
func withoutLeaders(partitions []int32) []consoleapi.Incomplete {
	lacks := make([]consoleapi.Incomplete, len(partitions))
	for i, p := range partitions {
		lacks[i] = consoleapi.Incomplete{Partition: p, Why: consoleapi.NoLeader}
	}
	return lacks
}

func deadletterLabels(r *events.Record) (labels recentLabels, kept bool) {
	labels.reason, _ = r.Header(events.HeaderReason)
	labels.intake = strings.Clone(events.IntakeOfDeadletter(r)) // it would keep the record's place
	return labels, true
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
