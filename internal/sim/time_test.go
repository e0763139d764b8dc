//go:build synctests

package sim

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Where the header of a record batch (magic 2) has what is changed here; the
// checksum covers everything from the attributes on.
const (
	batchCRCAt        = 17
	batchAttributesAt = 21
	batchFirstTimeAt  = 27
	batchMaxTimeAt    = 35
	batchHeaderBytes  = 61
	logAppendTimeBit  = 0x08
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendTime makes every topic one with LogAppendTime, or no role could correct
// a wrong clock. kfake stamps a batch whose own attributes ask for it, as no
// client's do, but keeps the checksum that came with it. So the batch is given
// the instant that kfake will give it: in virtual time that is the same.
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

// stamp leaves what is no batch to the broker, which refuses it.
func stamp(batch []byte, now int64) {
	if len(batch) < batchHeaderBytes {
		return
	}
	batch[batchAttributesAt+1] |= logAppendTimeBit
	binary.BigEndian.PutUint64(batch[batchFirstTimeAt:], uint64(now))
	binary.BigEndian.PutUint64(batch[batchMaxTimeAt:], uint64(now))
	binary.BigEndian.PutUint32(batch[batchCRCAt:], crc32.Checksum(batch[batchAttributesAt:], castagnoli))
}
