package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// cleanInterval is how often expired records are deleted.
const cleanInterval = time.Hour

// cleanerConfig disables kfake's own cleaner, which loses records:
//
//   - It deletes all segments of a partition whose records have expired. After a kill, the partition begins again at a
//     lower offset, and consumers with a committed offset skip the new records.
//   - It deletes records from compacted topics that are older than the broker's retention, a week by default. That would
//     delete the definitions.
//   - It compacts a partition by deleting its segments before it writes the new ones. A kill between loses them.
func cleanerConfig() kfake.Opt {
	return kfake.BrokerConfigs(map[string]string{
		"log.cleaner.backoff.ms": strconv.FormatInt(math.MaxInt64/int64(time.Millisecond), 10),
		"log.retention.ms":       "-1", // of topics without a setting of their own
	})
}

// cleaner deletes expired records. As in Apache Kafka, an emptied partition keeps an empty segment, whose name is the
// offset at which the partition continues (see writeEndMarker). kfake appends to that file later. The cleaner doesn't
// compact: the compacted topics of a namespace are small compared with its events, which are kept forever.
type cleaner struct {
	cluster  *kfake.Cluster
	dir      string // the data directory
	interval time.Duration
	due      time.Time
	fail     func(error) // called if the disk fails
}

// start starts the cleaner. It runs before a fetch when it is due: then kfake handles no other request, so that no batch
// is written between the creation of the empty segments and the deletion of the records.
func (c *cleaner) start() {
	c.due = time.Now().Add(c.interval)
	c.cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		if time.Now().Before(c.due) {
			return nil, nil, false
		}
		if err := c.clean(); err != nil {
			c.fail(fmt.Errorf("delete expired records: %w", err))
		}
		c.due = time.Now().Add(c.interval)
		return nil, nil, false
	})
}

// clean deletes expired records.
func (c *cleaner) clean() error {
	dirs, err := filepath.Glob(filepath.Join(c.dir, partitionsDir, "*"))
	if err != nil {
		return err
	}
	var added []string
	for _, dir := range dirs {
		end := c.endOf(filepath.Base(dir))
		if end < 1 {
			continue
		}
		path := filepath.Join(dir, fmt.Sprint(end)+segmentSuffix)
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		switch {
		case errors.Is(err, fs.ErrExist): // the partition is empty
			continue
		case err != nil:
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		added = append(added, path)
	}
	c.cluster.ApplyRetention()
	for _, path := range added {
		segments, err := segmentsOf(filepath.Dir(path))
		if err != nil {
			return err
		}
		if len(segments) == 1 {
			continue // the partition is empty now
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// endOf returns the end offset of the partition with this directory name, or 0 if there is none.
func (c *cleaner) endOf(name string) int64 {
	i := strings.LastIndexByte(name, '-')
	topic, err := url.PathUnescape(name[:max(i, 0)])
	if err != nil {
		return 0
	}
	partition, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil {
		return 0
	}
	info := c.cluster.PartitionInfo(topic, int32(partition))
	if info == nil {
		return 0
	}
	return info.HighWatermark
}
