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
	"github.com/waybill-run/waybill/projections"
)

const (
	// sinceDefault is how far back alerts and dead letters are looked for.
	sinceDefault = "24h"
	// noticesMaxBytes is where a page of them ends, as JSON: one dead letter may have more than a MiB of it.
	noticesMaxBytes = 16 << 20
	// noticeLeastBytes is more than the names in the JSON of one take.
	noticeLeastBytes = 512
)

// noticePlace is where an alert or a dead letter stands in its list. No two have the same,
// and none changes: so a list goes on where its page ended, whatever has come meanwhile.
type noticePlace struct {
	At        int64 `json:"a"` // Unix ms
	Apart     bool  `json:"x,omitempty"`
	Partition int32 `json:"p"`
	Offset    int64 `json:"o"`
}

// compare is negative where p comes before q: the newest come first.
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

// placeOfHold is that of an alert that an event is of, placeOfAlert of any: those that
// none is of stand apart, for their offsets are of another topic.
func placeOfHold(a *projections.Alert) noticePlace {
	return noticePlace{a.At.UnixMilli(), false, a.Partition, a.Offset}
}

func placeOfAlert(v *AlertView) noticePlace {
	p := noticePlace{Apart: v.Seq == 0, Partition: v.Partition}
	p.Offset, _ = strconv.ParseInt(v.Offset, 10, 64) // it was written by a console
	if v.At != nil {
		at, _ := time.Parse(events.TimeLayout, *v.At) // likewise
		p.At = at.UnixMilli()
	}
	return p
}

// ofHolds is the place among the alerts that an event is of.
func (p *noticePlace) ofHolds() *projections.AlertPlace {
	at := time.UnixMilli(p.At)
	if p.Apart {
		return &projections.AlertPlace{At: at, Partition: math.MaxInt32} // after all of that instant
	}
	return &projections.AlertPlace{At: at, Partition: p.Partition, Offset: p.Offset}
}

// noticeToken continues a list of alerts or dead letters. It holds the place, and what has
// to stay the same: the question, and the instant that its durations count from.
type noticeToken struct {
	Question string `json:"q"` // digest
	Now      int64  `json:"n"` // Unix ms
	noticePlace
}

// parseNoticeToken reads a token that continues the answer to a question.
func parseNoticeToken(text, question string) (t noticeToken, err error) {
	if err := readToken(text, &t); err != nil || t.Question != question || t.Now <= 0 || t.Partition < 0 || t.Offset < 0 {
		return t, errToken
	}
	return t, nil
}

// window is which alerts or dead letters are asked for.
type window struct {
	question string // digest of all but the page
	now      time.Time
	since    time.Time
	limit    int
	after    *noticePlace // nil: from the newest on
}

// window reads since, limit and page_token; filter is the parameter that narrows the list.
func (c *call) window(filter string) (*window, error) {
	q := c.r.URL.Query()
	w := &window{now: c.cfg.Now(), limit: pageDefault}
	w.question = filterDigest(strings.Join([]string{c.r.URL.Path, q.Get("since"), q.Get(filter)}, "\n"))
	if text := q.Get("page_token"); text != "" {
		t, err := parseNoticeToken(text, w.question)
		if err != nil {
			return nil, badRequest("page_token: %v", err)
		}
		w.now, w.after = time.UnixMilli(t.Now), &t.noticePlace
	}
	var err error
	if w.since, err = parseBack("since", cmp.Or(q.Get("since"), sinceDefault), w.now); err != nil {
		return nil, badRequest("%v", err)
	}
	if text := q.Get("limit"); text != "" {
		if w.limit, err = strconv.Atoi(text); err != nil || w.limit < 1 || w.limit > pageMax {
			return nil, badRequest("limit %q: 1 to %d", printable(text), pageMax)
		}
	}
	return w, nil
}

// newest keeps a page of a list that is read in another order, in bounded memory.
type newest[T any] struct {
	*window
	seen  int64 // on the page, or after it
	list  []placed[T]
	bytes int          // of the list, as JSON
	until *noticePlace // where the page ends at the latest; nil: anywhere
}

type placed[T any] struct {
	at    noticePlace
	bytes int
	thing T
}

// add takes a thing of so many bytes as JSON.
func (n *newest[T]) add(at noticePlace, bytes int, thing T) {
	if n.after != nil && at.compare(*n.after) <= 0 {
		return
	}
	n.seen++
	n.bytes += bytes
	n.list = append(n.list, placed[T]{at, bytes, thing})
	if len(n.list) >= 2*n.limit || n.bytes >= 2*noticesMaxBytes {
		n.cut()
	}
}

// stop ends the page at a place, or before.
func (n *newest[T]) stop(at noticePlace) {
	if n.until == nil || at.compare(*n.until) < 0 {
		n.until = &at
	}
}

// cut keeps what is on the page, of what has come. More can only push out of it.
func (n *newest[T]) cut() {
	slices.SortFunc(n.list, func(a, b placed[T]) int { return a.at.compare(b.at) })
	keep, bytes := 0, 0
	for keep < min(n.limit, len(n.list)) {
		next := &n.list[keep]
		if n.until != nil && next.at.compare(*n.until) > 0 {
			break
		}
		if keep > 0 && bytes+next.bytes > noticesMaxBytes {
			n.stop(n.list[keep-1].at) // or a smaller one that is older, and comes now, would follow: without those that are cut off here
			break
		}
		keep, bytes = keep+1, bytes+next.bytes
	}
	clear(n.list[keep:]) // or what was cut off would stay in memory
	n.list, n.bytes = n.list[:keep], bytes
}

// jsonBytes is how many bytes texts have in JSON.
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

// page is the page, how many come after it, and the token that continues the list.
func (n *newest[T]) page() (list []T, left int64, next string) {
	n.cut()
	list = make([]T, len(n.list))
	for i := range n.list {
		list[i] = n.list[i].thing
	}
	left = n.seen - int64(len(list))
	if left > 0 && len(list) > 0 {
		next = tokenText(noticeToken{n.question, n.now.UnixMilli(), n.list[len(list)-1].at})
	}
	return list, left, next
}
