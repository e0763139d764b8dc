package groupmember

import (
	"fmt"
	"strconv"
	"strings"
)

// A position is an offset of one topic's log. It is meaningless for any other log: that of a recreated topic, or one
// that was truncated. It is also not trusted if an operator chose it.
//
// So each commit of a worker carries a mark in its metadata: that a worker committed it, the id of the topic, and the
// last event of the partition (schedulerworker/last_event.go). A worker continues only from such a commit. Any other
// (kafka-consumer-groups --reset-offsets writes no metadata) is reported and not used: the inbox is read from its
// start, and records that the log of events reflects are skipped.

// markPrefix is the prefix of the metadata of a worker's commits; see mark.
const markPrefix = "waybill/1 "

// PositionFault names a fault of a position.
type PositionFault string

// The faults of a position.
const (
	// PositionForeign: no worker committed it to this topic. It is not used.
	PositionForeign PositionFault = "foreign"
	// PositionTrimmed: unread records from it on were deleted. Reading continues at the log's start.
	PositionTrimmed PositionFault = "trimmed"
	// PositionCut: the log was truncated below it. The inbox is not read.
	PositionCut PositionFault = "cut"
	// PositionRolledBack: it belongs to a transaction whose events the log doesn't have. It is not used.
	PositionRolledBack PositionFault = "rolled_back"
)

// Position is a position in a partition of an inbox, with the bounds of its log.
type Position struct {
	Topic      string
	Partition  int32
	Offset     int64
	Start, End int64 // negative: unknown
	// Metadata is that of the commit; empty: there was none, or Offset is the position that events reflect.
	Metadata string
}

// String returns the position and the bounds of its log.
func (p Position) String() string {
	s := fmt.Sprintf("%s/%d at %d", p.Topic, p.Partition, p.Offset)
	if p.Start >= 0 && p.End >= 0 {
		s += fmt.Sprintf(" of a log that holds [%d, %d)", p.Start, p.End)
	}
	return s
}

// PositionCommit is a commit of the group for one partition.
type PositionCommit struct {
	Offset   int64 // negative: none
	Metadata string
}

// JudgePosition decides where to read from, given a commit and the bounds of the log; negative bounds: unknown.
// atStart: from the log's start. fault is empty if nothing is wrong.
func JudgePosition(c PositionCommit, id string, start, end int64) (from int64, atStart bool, fault PositionFault) {
	topic, _, marked := ParsePositionMark(c.Metadata)
	switch {
	case c.Offset < 0:
		return 0, true, ""
	case id == "" || !marked || topic != id:
		return 0, true, PositionForeign
	case end >= 0 && c.Offset > end:
		return 0, true, PositionCut
	case start >= 0 && c.Offset < start:
		return start, false, PositionTrimmed
	}
	return c.Offset, false, ""
}

// IsCut reports whether a log, which its leader's epochs show as truncated, ends below the position, or starts below
// it. In the second case it has or may get unread records below the position.
func (p Position) IsCut() bool {
	return p.End >= 0 && p.End < p.Offset || p.Start >= 0 && p.Start < p.Offset
}

// FormatPositionMark returns the metadata of a commit: the prefix that a worker writes, the topic's id, and the offset
// of the last event, unless it is negative.
func FormatPositionMark(topic string, event int64) string {
	if event < 0 {
		return markPrefix + topic
	}
	return markPrefix + topic + " " + strconv.FormatInt(event, 10)
}

// IsPositionMark reports whether a worker made a commit, according to its metadata.
func IsPositionMark(metadata string) bool { return strings.HasPrefix(metadata, markPrefix) }

// ParsePositionMark parses a mark. event is negative if it names none.
func ParsePositionMark(metadata string) (topic string, event int64, ok bool) {
	rest, ok := strings.CutPrefix(metadata, markPrefix)
	topic, text, has := strings.Cut(rest, " ")
	if !ok || !has {
		return topic, -1, ok
	}
	event, err := strconv.ParseInt(text, 10, 64)
	return topic, event, err == nil && event >= 0
}
