package console

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/projections"
)

const (
	// sinceDefault is how far back alerts and dead letters are listed.
	sinceDefault = "24h"
	// noticesMaxBytes bounds a page of alerts or dead letters, as JSON. One dead letter may have more than 1 MiB.
	noticesMaxBytes = 16 << 20
	// noticeBaseBytes is an upper bound of the member names in the JSON of one alert or dead letter.
	noticeBaseBytes = 512
)

// noticePlace is the place of an alert or dead letter in its list. Places are unique and never change, so that a
// list continues where its page ended, whatever was added meanwhile.
type noticePlace struct {
	At        int64 `json:"a"` // Unix ms
	Apart     bool  `json:"x,omitempty"`
	Partition int32 `json:"p"`
	Offset    int64 `json:"o"`
}

// compare is negative if p comes before q: the newest come first.
func (p noticePlace) compare(q noticePlace) int {
	return cmp.Or(cmp.Compare(q.At, p.At), compareBools(p.Apart, q.Apart), cmp.Compare(p.Partition, q.Partition), cmp.Compare(q.Offset, p.Offset))
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// placeOfHold is the place of an alert that belongs to an event. placeOfAlert is that of any alert: those without
// an event sort apart, since their offsets belong to another topic.
func placeOfHold(a *projections.Alert) noticePlace {
	return noticePlace{a.At.UnixMilli(), false, a.Partition, a.Offset}
}

func placeOfAlert(v *consoleapi.Alert) noticePlace {
	p := noticePlace{Apart: v.Seq == 0, Partition: v.Partition}
	p.Offset, _ = strconv.ParseInt(v.Offset, 10, 64) // it was written by a console
	if v.At != nil {
		at, _ := time.Parse(events.TimeLayout, *v.At) // likewise
		p.At = at.UnixMilli()
	}
	return p
}

// alertPlace is the place among the alerts that belong to an event.
func (p *noticePlace) alertPlace() *projections.AlertPlace {
	at := time.UnixMilli(p.At)
	if p.Apart {
		return &projections.AlertPlace{At: at, Partition: math.MaxInt32} // after all of that instant
	}
	return &projections.AlertPlace{At: at, Partition: p.Partition, Offset: p.Offset}
}

// noticeToken continues a list of alerts or dead letters. It contains the place, a digest of the query, and the
// instant that durations count from.
type noticeToken struct {
	Question string `json:"q"` // digest
	Now      int64  `json:"n"` // Unix ms
	noticePlace
}

// parseNoticeToken parses a token that continues the answer to a query.
func parseNoticeToken(text, question string) (t noticeToken, err error) {
	if err := decodeToken(text, &t); err != nil || t.Question != question || t.Now <= 0 || t.Partition < 0 || t.Offset < 0 {
		return t, errToken
	}
	return t, nil
}

// window is the range of alerts or dead letters that a request asks for.
type window struct {
	question string // digest of the query without its page
	now      time.Time
	since    time.Time
	limit    int
	after    *noticePlace // nil: from the newest on
}

// noticesRequest has the parameters of pages of alerts and dead letters.
type noticesRequest struct {
	Limit     pageSize `query:"limit" jsonschema:"The maximum number of entries on the page. A page also ends at 16 MiB."`
	PageToken string   `query:"page_token" jsonschema:"next_page_token of the previous page, with the same parameters but limit."`
}

// window parses the parameters of a list. filter is the value of the parameter that narrows it.
func (c *call) window(in *noticesRequest, since, filter string) (*window, error) {
	w := &window{now: c.cfg.Now(), limit: in.Limit.orDefault()}
	w.question = filterDigest(strings.Join([]string{c.r.URL.Path, since, filter}, "\n"))
	if in.PageToken != "" {
		t, err := parseNoticeToken(in.PageToken, w.question)
		if err != nil {
			return nil, badRequest("page_token: %v", err)
		}
		w.now, w.after = time.UnixMilli(t.Now), &t.noticePlace
	}
	var err error
	if w.since, err = parsePastTime("since", cmp.Or(since, sinceDefault), w.now); err != nil {
		return nil, badRequest("%s", consoleapi.Printable(err.Error()))
	}
	return w, nil
}

// newest selects a page of the newest items from a list in any order, in bounded memory.
type newest[T any] struct {
	*window
	seen   int64 // items on the page and after it
	list   []placedItem[T]
	bytes  int          // of list, as JSON
	endsAt *noticePlace // upper bound of the page's end; nil: none
}

type placedItem[T any] struct {
	at    noticePlace
	bytes int
	item  T
}

// add adds an item, of that many bytes as JSON.
func (n *newest[T]) add(at noticePlace, bytes int, thing T) {
	if !n.follows(at) {
		return
	}
	n.seen++
	n.bytes += bytes
	n.list = append(n.list, placedItem[T]{at, bytes, thing})
	if len(n.list) >= 2*n.limit || n.bytes >= 2*noticesMaxBytes {
		n.trim()
	}
}

// follows reports whether a place is after the previous page.
func (n *newest[T]) follows(at noticePlace) bool { return n.after == nil || at.compare(*n.after) > 0 }

// addNext adds the item that is the next of the list, if it fits on the page. Otherwise it counts it, and returns false.
func (n *newest[T]) addNext(at noticePlace, bytes int, item T) bool {
	n.seen++
	if len(n.list) == n.limit || len(n.list) > 0 && n.bytes+bytes > noticesMaxBytes {
		return false
	}
	n.bytes += bytes
	n.list = append(n.list, placedItem[T]{at, bytes, item})
	return true
}

// endAt ends the page at a place or before it.
func (n *newest[T]) endAt(at noticePlace) {
	if n.endsAt == nil || at.compare(*n.endsAt) < 0 {
		n.endsAt = &at
	}
}

// trim drops items that are not on the page. Later items can only push more items out.
func (n *newest[T]) trim() {
	slices.SortFunc(n.list, func(a, b placedItem[T]) int { return a.at.compare(b.at) })
	keep, bytes := 0, 0
	for keep < min(n.limit, len(n.list)) {
		next := &n.list[keep]
		if n.endsAt != nil && next.at.compare(*n.endsAt) > 0 {
			break
		}
		if keep > 0 && bytes+next.bytes > noticesMaxBytes {
			n.endAt(n.list[keep-1].at) // or a smaller one that is older, and comes now, would follow: without those that are cut off here
			break
		}
		keep, bytes = keep+1, bytes+next.bytes
	}
	clear(n.list[keep:]) // or what was cut off would stay in memory
	n.list, n.bytes = n.list[:keep], bytes
}

// jsonBytes is the size of texts in JSON.
func jsonBytes(texts ...string) (n int) {
	for _, text := range texts {
		for _, r := range text {
			switch {
			case r == '"' || r == '\\':
				n += 2
			case r < ' ' || r == utf8.RuneError || r == '\u2028' || r == '\u2029':
				n += 6 // escaped
			default:
				n += utf8.RuneLen(r)
			}
		}
	}
	return n
}

// page returns the page, the number of items after it, and the token that continues the list.
func (n *newest[T]) page() (list []T, left int64, next string) {
	n.trim()
	list = make([]T, len(n.list))
	for i := range n.list {
		list[i] = n.list[i].item
	}
	left = n.seen - int64(len(list))
	if left > 0 && len(list) > 0 {
		next = encodeToken(noticeToken{n.question, n.now.UnixMilli(), n.list[len(list)-1].at})
	}
	return list, left, next
}
