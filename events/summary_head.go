package events

import "time"

// SummaryHead is the part of a Summary that says what a task is and when it changed. Reading it takes less time.
type SummaryHead struct {
	ID, Workflow string
	Version      int
	State        TaskState
	SubmittedAt  time.Time
	UpdatedAt    time.Time
	Stopped      uint64
	From         int64
	Item         bool
}

// DecodeSummaryHead reads the head of what Summary.Encode returned. It doesn't alias data.
func DecodeSummaryHead(data []byte) (SummaryHead, error) {
	var h SummaryHead
	err := decodeObject(data, &h)
	return h, err
}

// Open reports whether the task hasn't ended.
func (h *SummaryHead) Open() bool { return !h.State.Terminal() }

// Hidden is Summary.Hidden.
func (h *SummaryHead) Hidden() bool { return h.Item && h.State != StateError }

func (h *SummaryHead) fields(c *codec) {
	c.str("id", &h.ID)
	c.str("workflow", &h.Workflow)
	c.int("version", &h.Version)
	knownText(c, "state", &h.State)
	c.time("submitted_at", &h.SubmittedAt)
	c.time("updated_at", &h.UpdatedAt)
	c.int64("from", &h.From)
	c.bool("item", &h.Item)
	c.seq("stopped", &h.Stopped)
}
