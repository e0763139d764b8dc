package kafka

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waybill-run/waybill/events"
)

// narrowTopic is a topic with a limit on the bytes of a batch. A batch holds all records that were produced since the
// previous one.
type narrowTopic struct {
	most    int
	told    int // limit that it reports; 0: none
	split   *splitter
	pending []*pendingRecord
	written []string
	failed  map[string]error
	batches int
}

func newNarrowTopic(t *testing.T, most, told int) *narrowTopic {
	n := &narrowTopic{most: most, told: told, failed: map[string]error{}}
	n.split = &splitter{life: t.Context(), topics: map[string]*splitTopic{}, produce: func(s *pendingRecord) { n.pending = append(n.pending, s) },
		maxBytes: func(context.Context, string) int { return n.told }}
	return n
}

func (n *narrowTopic) send(key, value string) {
	r := events.Record{Topic: "t", Key: []byte(key), Value: []byte(value)}
	n.split.send(&pendingRecord{record: r, bytes: RecordBytesMax(&r)})
}

// answer accepts or refuses batches until no record is pending.
func (n *narrowTopic) answer() {
	for synctest.Wait(); len(n.pending) > 0; synctest.Wait() {
		batch, bytes := n.pending, BatchOverhead
		n.pending = nil
		n.batches++
		for _, s := range batch {
			bytes += s.bytes
		}
		var err error
		if bytes > n.most {
			err = kerr.MessageTooLarge
		}
		for _, s := range batch {
			if err == nil {
				n.written = append(n.written, string(s.record.Value))
			}
			if n.split.onProduced(s, err) && err != nil {
				n.failed[string(s.record.Value)] = err
			}
		}
	}
}

// TestSplitterJudgesByRecord checks a topic whose limit is unknown, known, or different from the reported one. Records
// that fit are written in order, and only the others fail.
func TestSplitterJudgesByRecord(t *testing.T) {
	for _, told := range []int{0, 500, 100_000} {
		t.Run(fmt.Sprint("says ", told), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNarrowTopic(t, 500, told)
				var want []string
				for i := range 20 {
					value := fmt.Sprintf("%03d", i)
					if i%5 == 4 {
						value = fmt.Sprintf("%0500d", i)
					} else {
						want = append(want, value)
					}
					n.send(fmt.Sprint(i%3), value)
				}
				n.answer()
				if !slices.Equal(n.written, want) || len(n.failed) != 4 {
					t.Errorf("written %q; %d failed", n.written, len(n.failed))
				}
				if most := map[int]int{500: 20, 0: 25, 100_000: 25}[told]; n.batches > most {
					t.Errorf("%d batches for 20 records, want at most %d", n.batches, most)
				}
			})
		})
	}
}

// TestSplitterKeepsTheOrderOfAKey checks that a record is written again if an earlier record of the same key is sent
// again, even if its own batch was accepted. The order of the key stays.
func TestSplitterKeepsTheOrderOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNarrowTopic(t, 300, 300)
		large := fmt.Sprintf("%0120d", 0)
		n.send("a", "1"+large)
		n.send("b", "1"+large)
		first := n.pending
		n.pending = nil
		n.send("a", "2")
		n.send("c", "2")
		second := n.pending
		n.pending = nil
		for _, s := range first {
			if n.split.onProduced(s, kerr.MessageTooLarge) {
				t.Error("one that may fit has failed")
			}
		}
		if n.split.onProduced(second[0], nil) || !n.split.onProduced(second[1], nil) {
			t.Error("the second of a is not written again, or that of c is")
		}
		n.answer()
		if want := []string{"1" + large, "1" + large, "2"}; !slices.Equal(n.written, want) {
			t.Errorf("written again %q, want %q", n.written, want)
		}
	})
}
