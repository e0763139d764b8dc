package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/index"
)

type tasksRequest struct {
	Filter    string   `query:"filter" jsonschema:"Terms with spaces between them: id:PREFIX state:STATE[,STATE...] workflow:NAME[/VERSION] label:KEY=VALUE step_in_error:STEP error_group:GROUP parent:ID agent:AGENT since:10m until:10m due_within:5m. A task must match all of them. With id the tasks are ordered by id, not by age. Put a term with spaces in double quotes, in which \\\" is a quote and \\\\ a backslash."`
	PageSize  pageSize `query:"page_size" jsonschema:"The maximum number of tasks on the page."`
	PageToken string   `query:"page_token" jsonschema:"next_page_token of the previous page, with the same filter."`
	listRequest
}

// tasks returns a page of the tasks that match a filter, the newest first.
func (c *call) tasks(in *tasksRequest) (*consoleapi.TaskPage, error) {
	p, err := c.page(in)
	if err != nil {
		return nil, err
	}
	ctx := c.r.Context()
	progress, leaderless, err := c.awaitOffsets(ctx, in.MinOffset)
	if err != nil {
		return nil, err
	}
	listed, err := c.cfg.Index.List(ctx, startedPartitions(progress), p.filter, p.after, p.size)
	if err != nil {
		return nil, err
	}
	lacks, err := c.incompletePartitions(progress, leaderless)
	if err != nil {
		return nil, err
	}
	l := &consoleapi.TaskPage{Tasks: make([]events.SummaryView, len(listed.Tasks)), NextPageToken: p.next(listed.Next), AsOf: reflectedOffsets(listed.AsOf), Incomplete: lacks}
	for i := range listed.Tasks {
		l.Tasks[i] = listed.Tasks[i].View()
	}
	return l, nil
}

// page parses the parameters of a list.
func (c *call) page(in *tasksRequest) (*page, error) {
	p := &page{text: in.Filter, now: c.cfg.Now(), size: in.PageSize.orDefault()}
	if in.PageToken != "" {
		t, err := parsePageToken(in.PageToken, p.text)
		if err != nil {
			return nil, badRequest("page_token: %v", err)
		}
		p.now, p.after = time.UnixMilli(t.Now), t.cursor()
	}
	var err error
	if p.filter, err = parseFilter(p.text, p.now); err != nil {
		return nil, badRequest("filter: %s", consoleapi.Printable(err.Error()))
	}
	return p, nil
}

// minOffsets parses min_offset of a list: PARTITION:OFFSET, separated by commas, or the current end of all
// partitions. leaderless are partitions whose end is unknown because they have no leader.
func (c *call) minOffsets(asked listOffsets) (floor map[int32]int64, leaderless []int32, err error) {
	text := string(asked)
	switch text {
	case "":
		return nil, nil, nil
	case consoleapi.LogEnd:
		if floor, err = c.ends(); err != nil {
			return nil, nil, err
		}
		for p := range c.cfg.Partitions {
			if !contains(floor, p) {
				leaderless = append(leaderless, p)
			}
		}
		return floor, leaderless, nil
	}
	floor, err = parseOffsets(text, c.cfg.Partitions)
	if err != nil {
		return nil, nil, badRequest("min_offset %q: %v", consoleapi.Printable(text), err)
	}
	return floor, nil, nil
}

// parseOffsets parses PARTITION:OFFSET, separated by commas.
func parseOffsets(text string, partitions int32) (map[int32]int64, error) {
	offsets := map[int32]int64{}
	for part := range strings.SplitSeq(text, ",") {
		left, right, _ := strings.Cut(part, ":")
		p, perr := strconv.ParseInt(left, 10, 32)
		offset, oerr := strconv.ParseInt(right, 10, 64)
		if perr != nil || oerr != nil || offset < 0 || p < 0 {
			return nil, errors.New("must be PARTITION:OFFSET, several with commas")
		}
		if p >= int64(partitions) {
			return nil, fmt.Errorf("there is no partition %d; there are %d, from 0", p, partitions)
		}
		if _, twice := offsets[int32(p)]; twice {
			return nil, fmt.Errorf("partition %d is given twice", p)
		}
		offsets[int32(p)] = offset
	}
	return offsets, nil
}

// formatOffsets is the inverse of parseOffsets.
func formatOffsets(offsets map[int32]int64) string {
	parts := make([]string, 0, len(offsets))
	for p, offset := range offsets {
		parts = append(parts, fmt.Sprintf("%d:%d", p, offset))
	}
	slices.SortFunc(parts, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	return strings.Join(parts, ",")
}

// awaitOffsets waits until the index has what a list is asked to have (min_offset), and saves it. progress is how far the
// partitions were read then; leaderless are those whose end is unknown.
func (c *call) awaitOffsets(ctx context.Context, asked listOffsets) (progress map[int32]index.Progress, leaderless []int32, err error) {
	floor, leaderless, err := c.minOffsets(asked)
	if err != nil {
		return nil, nil, err
	}
	within, cancel := context.WithTimeout(ctx, minOffsetWithin)
	defer cancel()
	for p, offset := range floor {
		if err := c.awaitOffset(within, p, offset); err != nil {
			return nil, nil, err
		}
	}
	progress = c.cfg.Index.Progress()
	return progress, leaderless, c.cfg.Index.Flush(ctx, startedPartitions(progress)...)
}

// awaitEnds waits until the index has all that some partitions hold now, so that Find reflects it. It fails with the
// problem incomplete if one of them can't be read that far.
func (c *call) awaitEnds(ps []int32) error {
	ends, err := c.ends()
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(c.r.Context(), minOffsetWithin)
	defer cancel()
	for _, p := range ps {
		if !contains(ends, p) {
			return c.incompleteError(c.withoutLeader(c.cfg.Index.Progress(), p))
		}
		if err := c.awaitOffset(within, p, ends[p]); err != nil {
			return err
		}
		at := c.cfg.Index.Progress()[p]
		if why := c.whyIncomplete(at); why != "" {
			return c.incompleteError(consoleapi.Incomplete{Partition: p, Why: why, Restored: at.Restored()})
		}
	}
	return nil
}

// awaitOffset waits until a partition was applied up to an offset, while within lasts. It fails if the partition isn't
// being read yet.
func (c *call) awaitOffset(within context.Context, p int32, offset int64) error {
	if !contains(c.cfg.Index.Progress(), p) {
		return c.notReadError(p)
	}
	err := c.cfg.Index.AwaitOffset(within, p, offset)
	if errors.Is(err, context.DeadlineExceeded) && c.r.Context().Err() == nil {
		at := c.cfg.Index.Progress()[p]
		e := incomplete("partition %d was not read up to offset %d within %s; it is at %d", p, offset, minOffsetWithin, at.Next)
		e.Incomplete = []consoleapi.Incomplete{{Partition: p, Why: consoleapi.Behind, Restored: at.Restored()}}
		return e
	}
	return err
}

// reflectedOffsets lists the offsets that an answer reflects, by partition.
func reflectedOffsets(offsets map[int32]int64) []events.AsOf {
	list := make([]events.AsOf, 0, len(offsets))
	for p, next := range offsets {
		list = append(list, events.AsOf{Partition: p, Offset: strconv.FormatInt(next, 10)})
	}
	slices.SortFunc(list, func(a, b events.AsOf) int { return cmp.Compare(a.Partition, b.Partition) })
	return list
}
