package scheduler

import (
	"context"
	"sync"

	"github.com/waybill-run/waybill/events"
)

// trim deletes the inputs that the flushed stores reflect, and the inputs that were forwarded from added partitions.
func (c *Config) trim(ctx context.Context) {
	if c.Trim == nil {
		return
	}
	for in, before := range c.flushed.drain() {
		topic := c.Namespace.Inbox(in.inbox)
		if err := c.Trim(ctx, topic, in.topicID, before); err != nil && ctx.Err() == nil {
			c.Listener.TrimFailed(topic, err)
		}
	}
}

// inboxTopic is an inbox and the id of its topic; empty: unknown. Offsets are positions in the topic with that id.
type inboxTopic struct {
	inbox   events.Inbox
	topicID string
}

// inboxOffsets are offsets by inbox and partition.
type inboxOffsets map[events.Inbox]map[int32]int64

func (o inboxOffsets) set(i events.Inbox, p int32, offset int64) {
	if o[i] == nil {
		o[i] = map[int32]int64{}
	}
	o[i][p] = offset
}

// flushedInput collects from all workers the offsets below which each inbox may be trimmed.
type flushedInput struct {
	sync.Mutex
	offsets map[inboxTopic]map[int32]int64
}

func (f *flushedInput) add(p int32, st events.PartitionState, next int64) {
	if next == 0 {
		return
	}
	f.Lock()
	defer f.Unlock()
	for i, offset := range st.Reflected {
		if offset > 0 {
			f.set(inboxTopic{events.Inbox(i), st.TopicIDs[i]}, p, offset)
		}
	}
}

// set sets the offset of a partition. The caller must hold the lock.
func (f *flushedInput) set(in inboxTopic, p int32, offset int64) {
	if f.offsets == nil {
		f.offsets = map[inboxTopic]map[int32]int64{}
	}
	if f.offsets[in] == nil {
		f.offsets[in] = map[int32]int64{}
	}
	f.offsets[in][p] = offset
}

// addForwarded adds offsets of added partitions. Their inputs were forwarded in the transactions that committed their
// positions.
func (f *flushedInput) addForwarded(brought inboxOffsets, ids events.TopicIDs) {
	if len(brought) == 0 {
		return
	}
	f.Lock()
	defer f.Unlock()
	for i, ps := range brought {
		for p, offset := range ps {
			f.set(inboxTopic{i, ids[i]}, p, offset)
		}
	}
}

func (f *flushedInput) drain() map[inboxTopic]map[int32]int64 {
	f.Lock()
	defer f.Unlock()
	taken := f.offsets
	f.offsets = nil
	return taken
}
