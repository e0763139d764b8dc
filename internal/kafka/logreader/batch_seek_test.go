package logreader

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
)

// testLog is the log of a partition, with its aborted transactions.
type testLog struct {
	batches []testBatch
	aborted []testAborted
	end     int64
}

// testAborted is an aborted transaction: the offsets of its first record and of its marker.
type testAborted struct{ producer, first, last int64 }

// record returns the record of an offset, with content that a test recognizes.
func (l *testLog) record(offset int32) testRecord {
	return testRecord{offset: offset, key: []byte("k"), value: fmt.Append(nil, l.end+int64(offset))}
}

func (l *testLog) append(b testBatch) {
	b.first = l.end
	l.batches = append(l.batches, b)
	l.end += int64(b.last) + 1
}

// data appends a batch of n records of a transaction.
func (l *testLog) data(producer int64, n int32) {
	b := testBatch{producer: producer, attributes: attributeTransactional, last: n - 1}
	for i := range n {
		b.records = append(b.records, l.record(i))
	}
	l.append(b)
}

// finish ends a producer's transaction, which began at first.
func (l *testLog) finish(producer, first int64, commit bool) {
	if !commit {
		l.aborted = append(l.aborted, testAborted{producer, first, l.end})
	}
	l.append(marker(l.end, producer, commit))
}

// anyLog returns a log of interleaved transactions of several producers. All of them are finished.
func anyLog(r *rand.Rand, batches int) *testLog {
	l := &testLog{}
	open := map[int64]int64{} // first offset, by producer
	for len(l.batches) < batches {
		producer := int64(1 + r.IntN(4))
		first, is := open[producer]
		switch {
		case is && r.IntN(3) == 0:
			l.finish(producer, first, r.IntN(2) == 0)
			delete(open, producer)
			continue
		case r.IntN(8) == 0:
			l.finish(9, l.end, true) // end of a transaction whose records are in another partition
			continue
		case !is:
			open[producer] = l.end
		}
		l.data(producer, int32(1+r.IntN(1+r.IntN(2*chunkRecords))))
	}
	for producer := range int64(5) {
		if first, is := open[producer]; is {
			l.finish(producer, first, r.IntN(2) == 0)
		}
	}
	return l
}

// fetch answers as a broker does: with whole batches of about the given size, beginning with the batch that contains
// from, and with the aborted transactions that overlap them.
func (l *testLog) fetch(from int64, bytes int) (answer kmsg.FetchResponseTopicPartition) {
	upTo := from
	for _, b := range l.batches {
		if last := b.first + int64(b.last); last >= from && len(answer.RecordBatches) < bytes {
			answer.RecordBatches = b.write(answer.RecordBatches)
			upTo = last + 1
		}
	}
	for _, a := range l.aborted {
		if a.last >= from && a.first < upTo {
			answer.AbortedTransactions = append(answer.AbortedTransactions, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: a.producer, FirstOffset: a.first})
		}
	}
	return answer
}

// committed returns what the client returns for the whole log.
func (l *testLog) committed(t *testing.T) []events.Record {
	t.Helper()
	records, _, err := asClient(l.fetch(0, 1<<30), 0)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// seekAll reads the records at ascending offsets as ReadAt does: it seeks within a response, and fetches another when
// nothing of the response is left.
func seekAll(t *testing.T, l *testLog, offsets []int64, bytes int, lend bool) (found []events.Record) {
	t.Helper()
	in := newBatchReader("t", 3, 0, lend)
	for len(offsets) > 0 && in.position < l.end {
		in.seek(max(in.position, offsets[0]))
		if len(in.rest) == 0 {
			answer := l.fetch(in.position, bytes)
			in.startResponse(&answer)
		}
		records, err := in.next()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range copied(records) {
			if _, sought := slices.BinarySearch(offsets, r.Offset); sought {
				found = append(found, r)
			}
		}
		offsets = slices.DeleteFunc(offsets, func(o int64) bool { return o < in.position })
	}
	return found
}

// TestSeekPastMarkerKeepsLaterTransactions checks that a marker below the position ends its transaction: later
// committed records of the same producer are returned.
func TestSeekPastMarkerKeepsLaterTransactions(t *testing.T) {
	l := &testLog{}
	l.data(1, 2)            // 0 1
	l.data(2, chunkRecords) // 2 to 129: a chunk
	l.finish(1, 0, false)   // 130
	l.data(1, 3)            // 131 132 133
	l.finish(1, 131, true)  // 134
	l.finish(2, 2, true)    // 135
	found := seekAll(t, l, []int64{2, 131, 133}, 1<<20, false)
	if got := offsetsIn(found); fmt.Sprint(got) != "[2 131 133]" {
		t.Errorf("read the records at %v; want all three: 2, 131, 133", got)
	}
}

func offsetsIn(rs []events.Record) (offsets []int64) {
	for _, r := range rs {
		offsets = append(offsets, r.Offset)
	}
	return offsets
}

// TestSeekGivesWhatTheClientGives checks that the records at the sought offsets equal those that the client returns for
// the whole log, for random transactions, response sizes and seeks.
func TestSeekGivesWhatTheClientGives(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range suite.Of(t, 200, 2000) {
		l := anyLog(r, 4+r.IntN(30))
		all := l.committed(t)
		var sought []int64
		density := 1 + r.IntN(200)
		for offset := range l.end {
			if r.IntN(density) == 0 {
				sought = append(sought, offset)
			}
		}
		want := slices.DeleteFunc(slices.Clone(all), func(r events.Record) bool { return !slices.Contains(sought, r.Offset) })
		bytes, lend := 1+r.IntN(20000), r.IntN(2) == 0
		got := seekAll(t, l, slices.Clone(sought), bytes, lend)
		if !slices.Equal(offsetsIn(got), offsetsIn(want)) || len(got) > 0 && !reflect.DeepEqual(got, copied(want)) {
			t.Fatalf("sought %v in answers of %d bytes: read %v; the client reads %v\nrolled back: %v", sought, bytes, offsetsIn(got), offsetsIn(want), l.aborted)
		}
	}
}
