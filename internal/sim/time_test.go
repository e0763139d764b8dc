//go:build synctests

package sim

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The offsets of changed fields in the header of a record batch (magic 2). The checksum covers everything from the
// attributes on.
const (
	batchCRCAt        = 17
	batchAttributesAt = 21
	batchFirstTimeAt  = 27
	batchMaxTimeAt    = 35
	batchHeaderBytes  = 61
	logAppendTimeBit  = 0x08
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendTime sets LogAppendTime for every topic, because otherwise no role could correct a wrong clock. kfake sets the
// timestamps of a batch whose attributes ask for it, which no client does. But it keeps the client's checksum. So the
// batch gets the timestamp that kfake will set: in virtual time both are the same.
func appendTime(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		now := time.Now().UnixMilli()
		topics := req.(*kmsg.ProduceRequest).Topics
		for i := range topics {
			for j := range topics[i].Partitions {
				stamp(topics[i].Partitions[j].Records, now)
			}
		}
		return nil, nil, false
	})
}

// stamp ignores invalid batches, because the broker refuses them.
func stamp(batch []byte, now int64) {
	if len(batch) < batchHeaderBytes {
		return
	}
	batch[batchAttributesAt+1] |= logAppendTimeBit
	binary.BigEndian.PutUint64(batch[batchFirstTimeAt:], uint64(now))
	binary.BigEndian.PutUint64(batch[batchMaxTimeAt:], uint64(now))
	binary.BigEndian.PutUint32(batch[batchCRCAt:], crc32.Checksum(batch[batchAttributesAt:], castagnoli))
}
