package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// taskList is a page of tasks.
type taskList struct {
	Tasks []events.SummaryView `json:"tasks"`
	// NextPageToken continues the list; empty: there is no more. A page can be
	// short, or empty, and not the last: then the work of a page was bounded.
	NextPageToken string        `json:"next_page_token"`
	AsOf          []events.AsOf `json:"as_of"`
	// MissingPartitions are those that the list has nothing of, as no console reads them at the moment, or not all
	// of what was asked for, as no broker leads them.
	MissingPartitions []int32 `json:"missing_partitions"`
}

// tasks answers with a page of the tasks that a filter lets through, the newest
// first.
func (c *call) tasks() (any, error) {
	if err := c.knows("filter", "page_size", "page_token", "min_offset"); err != nil {
		return nil, err
	}
	p, err := c.page()
	if err != nil {
		return nil, err
	}
	ctx := c.r.Context()
	floor, unled, err := c.minOffsets()
	if err != nil {
		return nil, err
	}
	share, err := c.shares()
	if err != nil {
		return nil, err
	}
	if err := c.await(ctx, share.own, floor); err != nil {
		return nil, err
	}
	listed, err := c.cfg.Audit.List(ctx, share.own, p.filter, p.after, p.size)
	if err != nil {
		return nil, err
	}
	m := merging{size: p.size}
	m.add(listed)
	if err := gather(c, share.at, m.addPeer); err != nil {
		return nil, err
	}
	if m.err != nil {
		return nil, m.err
	}
	missing, err := c.missing(m.asOf, floor, unled...)
	if err != nil {
		return nil, err
	}
	return m.list(p, missing), nil
}

// page reads what is asked for.
func (c *call) page() (*page, error) {
	q := c.r.URL.Query()
	p := &page{text: q.Get("filter"), now: c.cfg.Now(), size: pageDefault}
	if text := q.Get("page_token"); text != "" {
		t, err := parseToken(text, p.text)
		if err != nil {
			return nil, badRequest("page_token: %v", err)
		}
		p.now, p.after = time.UnixMilli(t.Now), t.cursor()
	}
	if text := q.Get("page_size"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > pageMax {
			return nil, badRequest("page_size %q: 1 to %d", printable(text), pageMax)
		}
		p.size = n
	}
	var err error
	if p.filter, err = parseFilter(p.text, p.now); err != nil {
		return nil, badRequest("filter: %v", err)
	}
	return p, nil
}

// knows refuses parameters that nothing would come of, and those that are there
// twice.
func (c *call) knows(names ...string) error {
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return badRequest("the query can't be read: %v", err)
	}
	for name, values := range q {
		switch {
		case !slices.Contains(names, name):
			return badRequest("there is no parameter %q here; there is %s", printable(name), cmp.Or(strings.Join(names, ", "), "none"))
		case len(values) > 1:
			return badRequest("the parameter %s is there %d times", name, len(values))
		}
	}
	return nil
}

// minOffsets reads min_offset of a list: PARTITION:OFFSET, several with commas, or the
// log's end as of now, of all partitions. unled are those of which the end can't be told, since no broker
// leads them.
func (c *call) minOffsets() (floor map[int32]int64, unled []int32, err error) {
	text := c.r.URL.Query().Get("min_offset")
	switch text {
	case "":
		return nil, nil, nil
	case logEnd:
		if floor, err = c.ends(); err != nil {
			return nil, nil, err
		}
		for p := range c.cfg.Partitions {
			if !known(floor, p) {
				unled = append(unled, p)
			}
		}
		return floor, unled, nil
	}
	floor, err = parseOffsets(text, c.cfg.Partitions)
	if err != nil {
		return nil, nil, badRequest("min_offset %q: %v", printable(text), err)
	}
	return floor, nil, nil
}

// parseOffsets reads PARTITION:OFFSET, several with commas.
func parseOffsets(text string, partitions int32) (map[int32]int64, error) {
	offsets := map[int32]int64{}
	for part := range strings.SplitSeq(text, ",") {
		left, right, _ := strings.Cut(part, ":")
		p, perr := strconv.ParseInt(left, 10, 32)
		offset, oerr := strconv.ParseInt(right, 10, 64)
		if perr != nil || oerr != nil || offset < 0 || p < 0 {
			return nil, errors.New("PARTITION:OFFSET, several with commas")
		}
		if p >= int64(partitions) {
			return nil, fmt.Errorf("there is no partition %d; there are %d, from 0", p, partitions)
		}
		if _, twice := offsets[int32(p)]; twice {
			return nil, fmt.Errorf("partition %d is there twice", p)
		}
		offsets[int32(p)] = offset
	}
	return offsets, nil
}

// formatOffsets is the inverse of parseOffsets, without partitions of which nothing came yet.
func formatOffsets(offsets map[int32]int64) string {
	parts := make([]string, 0, len(offsets))
	for p, offset := range offsets {
		if offset == FromEnd {
			continue
		}
		parts = append(parts, fmt.Sprintf("%d:%d", p, offset))
	}
	slices.SortFunc(parts, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	return strings.Join(parts, ",")
}

// await brings partitions up to date, and to the offsets that are asked for.
func (c *call) await(ctx context.Context, own []int32, floor map[int32]int64) error {
	for p, offset := range floor {
		if !slices.Contains(own, p) {
			continue // whoever has it waits
		}
		if err := c.awaitOffset(ctx, p, offset); err != nil {
			return err
		}
	}
	return c.cfg.Audit.Fresh(ctx, own...)
}

func (c *Console) awaitOffset(ctx context.Context, p int32, offset int64) error {
	within, cancel := context.WithTimeout(ctx, minOffsetWithin)
	defer cancel()
	err := c.cfg.Audit.Reach(within, p, offset)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return behind("partition %d has not been read to offset %d within %s; it is at %d", p, offset, minOffsetWithin, c.cfg.Audit.Progress()[p].Next)
	}
	return err
}

// merging makes one page of several.
type merging struct {
	size  int
	tasks []events.SummaryView
	more  bool
	// until is the earliest place at which one of the pages stopped: what comes
	// after it may not be known yet.
	until *projections.Cursor
	asOf  map[int32]int64
	err   error // of an answer that can't be merged
}

func (m *merging) add(p projections.Page) {
	for i := range p.Tasks {
		m.tasks = append(m.tasks, p.Tasks[i].View())
	}
	m.stop(p.Next)
	if m.asOf == nil {
		m.asOf = map[int32]int64{}
	}
	for p, next := range p.AsOf {
		m.asOf[p] = next
	}
}

func (m *merging) addPeer(l taskList) {
	m.tasks = append(m.tasks, l.Tasks...)
	if l.NextPageToken != "" {
		t, err := parseTokenOf(l.NextPageToken)
		if err != nil { // without the place, what comes after it would be passed over
			m.err = peerUnanswered("the page of another console ends at a place that can't be read; bring all consoles to the same build")
		}
		c := t.cursor()
		m.stop(&c)
	}
	addAsOf(m.asOf, l.AsOf)
}

func (m *merging) stop(at *projections.Cursor) {
	if at == nil {
		return
	}
	m.more = true
	if m.until == nil || compareCursors(*at, *m.until) < 0 {
		m.until = at
	}
}

// list is the page: what is before the first place at which any page stopped.
func (m *merging) list(p *page, missing []int32) *taskList {
	slices.SortFunc(m.tasks, func(a, b events.SummaryView) int { return compareCursors(cursorOf(a), cursorOf(b)) })
	m.tasks = slices.CompactFunc(m.tasks, func(a, b events.SummaryView) bool { return a.ID == b.ID })
	if m.until != nil {
		m.tasks = slices.DeleteFunc(m.tasks, func(v events.SummaryView) bool { return compareCursors(cursorOf(v), *m.until) > 0 })
	}
	next := m.until
	if len(m.tasks) > m.size {
		m.tasks = m.tasks[:m.size]
		last := cursorOf(m.tasks[m.size-1])
		next = &last
	}
	l := &taskList{Tasks: m.tasks, NextPageToken: p.next(next), AsOf: asOf(m.asOf), MissingPartitions: missing}
	if l.Tasks == nil {
		l.Tasks = []events.SummaryView{}
	}
	return l
}

// cursorOf is the place of a task in the list.
func cursorOf(v events.SummaryView) projections.Cursor {
	c := projections.Cursor{Task: v.ID}
	if v.SubmittedAt != nil {
		if at, err := time.Parse(events.TimeLayout, *v.SubmittedAt); err == nil {
			c.Submitted = at.UnixMilli()
		}
	}
	return c
}

// compareCursors orders places as the list does: the newest first, then by id.
func compareCursors(a, b projections.Cursor) int {
	return cmp.Or(cmp.Compare(b.Submitted, a.Submitted), strings.Compare(a.Task, b.Task))
}

// asOf is what an answer reflects, by partition.
func asOf(offsets map[int32]int64) []events.AsOf {
	list := make([]events.AsOf, 0, len(offsets))
	for p, next := range offsets {
		list = append(list, events.AsOf{Partition: p, Offset: strconv.FormatInt(next, 10)})
	}
	slices.SortFunc(list, func(a, b events.AsOf) int { return cmp.Compare(a.Partition, b.Partition) })
	return list
}
