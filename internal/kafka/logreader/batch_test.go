package logreader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/suite"
)

// testBatch describes a batch that write encodes.
type testBatch struct {
	first, producer int64
	attributes      uint16
	last            int32 // last offset, relative to first
	records         []testRecord
	count           int32 // difference between the record count in the header and the number of records
	old             bool  // magic 1
}

type testRecord struct {
	later      int64
	offset     int32
	key, value []byte
	headers    []events.Header
}

var snappy, _ = kgo.DefaultCompressor(kgo.SnappyCompression())

func varint(dst []byte, n int64) []byte { return binary.AppendVarint(dst, n) }

func varBytes(dst, b []byte) []byte {
	if b == nil {
		return varint(dst, -1)
	}
	return append(varint(dst, int64(len(b))), b...)
}

// write appends the batch in Kafka's format.
func (b *testBatch) write(dst []byte) []byte {
	var text []byte
	for _, r := range b.records {
		body := varBytes(varBytes(varint(varint([]byte{0}, r.later), int64(r.offset)), r.key), r.value)
		body = varint(body, int64(len(r.headers)))
		for _, h := range r.headers {
			body = varBytes(varBytes(body, []byte(h.Key)), h.Value)
		}
		text = append(varint(text, int64(len(body))), body...)
	}
	if b.attributes&attributeCodec == uint16(kgo.CodecSnappy) {
		text, _ = snappy.Compress(&bytes.Buffer{}, text)
	}
	if b.old {
		m := kmsg.MessageV1{Offset: b.first, Magic: 1, Timestamp: 5, Key: []byte("k"), Value: []byte("old")}
		m.MessageSize = int32(len(m.AppendTo(nil)) - 12)
		raw := m.AppendTo(nil)
		binary.BigEndian.PutUint32(raw[12:], crc32.ChecksumIEEE(raw[16:]))
		return append(dst, raw...)
	}
	rb := kmsg.RecordBatch{FirstOffset: b.first, PartitionLeaderEpoch: 3, Magic: 2, Attributes: int16(b.attributes), LastOffsetDelta: b.last,
		FirstTimestamp: 1_700_000_000_000, MaxTimestamp: 1_700_000_009_000, ProducerID: b.producer, ProducerEpoch: 1,
		NumRecords: int32(len(b.records)) + b.count, Records: text}
	rb.Length = int32(len(rb.AppendTo(nil)) - batchEpoch)
	raw := rb.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[batchCRC:], crc32.Checksum(raw[batchAttributes:], castagnoli))
	return append(dst, raw...)
}

// marker returns a batch with a transaction marker.
func marker(first, producer int64, commit bool) testBatch {
	kind := byte(0)
	if commit {
		kind = 1
	}
	return testBatch{first: first, producer: producer, attributes: attributeControl | attributeTransactional,
		records: []testRecord{{key: []byte{0, 0, 0, kind}, value: make([]byte, 6)}}}
}

// anyFetch returns a random response of a broker, with transactions of several producers.
func anyFetch(r *rand.Rand) (answer kmsg.FetchResponseTopicPartition) {
	offset := int64(r.IntN(5))
	for range 1 + r.IntN(6) {
		b := testBatch{first: offset, producer: int64(r.IntN(3)), attributes: attributeTransactional}
		switch r.IntN(8) {
		case 0:
			b = marker(offset, b.producer, r.IntN(2) == 0)
		case 1:
			b.attributes = 0
		case 2:
			b.attributes |= attributeLogAppendTime
		}
		if r.IntN(2) == 0 {
			b.attributes |= uint16(kgo.CodecSnappy)
		}
		if len(b.records) == 0 {
			for range r.IntN(70) {
				b.records = append(b.records, anyRecord(r, b.last))
				b.last += 1 + int32(r.IntN(2)*r.IntN(3))
			}
			b.last = max(0, b.last-1) + int32(r.IntN(2))
			if r.IntN(10) == 0 {
				b.count = int32(r.IntN(5) - 2)
			}
			b.old = r.IntN(30) == 0
		}
		if r.IntN(4) == 0 {
			answer.AbortedTransactions = append(answer.AbortedTransactions, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: b.producer, FirstOffset: offset})
		}
		answer.RecordBatches = b.write(answer.RecordBatches)
		offset += int64(b.last) + 1 + int64(r.IntN(2))
	}
	r.Shuffle(len(answer.AbortedTransactions), func(i, j int) {
		a := answer.AbortedTransactions
		a[i], a[j] = a[j], a[i]
	})
	return answer
}

func anyRecord(r *rand.Rand, offset int32) testRecord {
	text := func(n int) []byte {
		switch b := bytes.Repeat([]byte{byte('a' + r.IntN(26))}, r.IntN(n)); r.IntN(6) {
		case 0:
			return nil
		default:
			return b
		}
	}
	t := testRecord{later: int64(r.IntN(2000) - 500), offset: offset, key: text(20), value: text(600)}
	for i := range r.IntN(6) {
		t.headers = append(t.headers, events.Header{Key: "header-" + string(rune('a'+(i+r.IntN(20)/19)%7)), Value: text(30)})
	}
	return t
}

// asClient returns the records that the client decodes from a response, and its next position.
func asClient(answer kmsg.FetchResponseTopicPartition, position int64) ([]events.Record, int64, error) {
	answer.Partition = 3
	fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: position, IsolationLevel: kgo.ReadCommitted(), Topic: "t", Partition: 3,
	}, &answer, kgo.DefaultDecompressor(), nil)
	return kafka.FromKgo(fetched.Records, nil), max(position, next), fetched.Err
}

// asBatches returns the records that a batchReader decodes from a response, and its next position. It copies borrowed
// records.
func asBatches(answer kmsg.FetchResponseTopicPartition, position int64, lend bool) (all []events.Record, next int64, err error) {
	b := newBatchReader("t", 3, position, lend)
	b.startResponse(&answer)
	for len(b.rest) > 0 && err == nil {
		var rs []events.Record
		rs, err = b.next()
		if lend {
			rs = copied(rs)
		}
		all = append(all, rs...)
	}
	return all, b.position, err
}

func copied(rs []events.Record) (out []events.Record) {
	for _, r := range rs {
		r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
		var hs []events.Header
		for _, h := range r.Headers {
			hs = append(hs, events.Header{Key: strings.Clone(h.Key), Value: bytes.Clone(h.Value)})
		}
		r.Headers = hs
		out = append(out, r)
	}
	return out
}

// sameAsClient compares the results of asClient and asBatches.
func sameAsClient(t *testing.T, answer kmsg.FetchResponseTopicPartition, position int64) {
	t.Helper()
	want, wantNext, wantErr := asClient(answer, position)
	for _, lend := range []bool{false, true} {
		got, next, err := asBatches(answer, position, lend)
		if wantErr != nil {
			// The client returns nothing for such a fetch. A batchReader first returns the records before the
			// unreadable batch, and its next fetch begins with that batch.
			if len(got) > len(want) || len(got) > 0 && !reflect.DeepEqual(got, copied(want[:len(got)])) {
				t.Fatalf("lent: %v: read %d records (%v), the client %d (%v)", lend, len(got), err, len(want), wantErr)
			}
			if err == nil && next == position {
				t.Fatalf("lent: %v: nothing was read, and it isn't said why: %v", lend, wantErr)
			}
			continue
		}
		for i := range min(len(got), len(want)) {
			if a, b := copied(got[i:i+1]), copied(want[i:i+1]); !reflect.DeepEqual(a, b) {
				t.Fatalf("lent: %v: record %d is read as\n%+v, by the client as\n%+v", lend, i, a[0], b[0])
			}
		}
		if err != nil || next != wantNext || len(got) != len(want) {
			t.Fatalf("lent: %v: read %d records, next %d (%v); the client %d, %d", lend, len(got), next, err, len(want), wantNext)
		}
	}
}

// TestBatchesAreTheClients checks that a batchReader decodes random responses as the client does: records, headers,
// times, aborted transactions, markers, gaps and the next position.
func TestBatchesAreTheClients(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range suite.Of(t, 300, 3000) {
		answer := anyFetch(r)
		if r.IntN(4) == 0 { // truncated, as brokers do at the byte limit
			answer.RecordBatches = answer.RecordBatches[:r.IntN(len(answer.RecordBatches)+1)]
		}
		sameAsClient(t, answer, int64(r.IntN(60)))
	}
}

// FuzzBatches checks that a batchReader decodes any response as the client does.
func FuzzBatches(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		f.Add(anyFetch(r).RecordBatches, int64(r.IntN(60)), int64(-1), int64(0), true)
	}
	f.Fuzz(func(t *testing.T, in []byte, position, producer, aborted int64, mend bool) {
		if position < 0 {
			return
		}
		in = bytes.Clone(in)
		for at := in; mend && len(at) > batchRecords; { // without a correct checksum, every change is found at once
			size := int(int32(binary.BigEndian.Uint32(at[batchLength:]))) + batchEpoch
			if size < batchRecords || size > len(at) {
				break
			}
			if long, _ := binary.Uvarint(at[batchRecords:size]); at[batchAttributes+1]&attributeCodec != 0 && long > 1<<20 {
				return // Snappy would allocate the length that the header states
			}
			binary.BigEndian.PutUint32(at[batchCRC:], crc32.Checksum(at[batchAttributes:size], castagnoli))
			at = at[size:]
		}
		if first := int64(0); len(in) >= 8 {
			if first = int64(binary.BigEndian.Uint64(in)); first == -1 {
				return // no broker sends it
			}
		}
		answer := kmsg.FetchResponseTopicPartition{RecordBatches: in}
		if producer >= 0 {
			answer.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: producer, FirstOffset: aborted}}
		}
		sameAsClient(t, answer, position)
	})
}

// TestChangedBatchIsRefused checks that reading stops with an error at a corrupt batch.
func TestChangedBatchIsRefused(t *testing.T) {
	whole := testBatch{first: 0, records: []testRecord{{value: []byte("a")}}}
	second := testBatch{first: 1, records: []testRecord{{value: []byte("b")}}}
	in := second.write(whole.write(nil))
	in[len(in)-2] ^= 1
	b := newBatchReader("t", 3, 0, true)
	b.startResponse(&kmsg.FetchResponseTopicPartition{RecordBatches: in})
	rs, err := b.next()
	if err != nil || len(rs) != 1 || b.position != 1 {
		t.Fatalf("%d records, next %d, %v; want the first, and then 1", len(rs), b.position, err)
	}
	b.startResponse(&kmsg.FetchResponseTopicPartition{RecordBatches: in[len(whole.write(nil)):]})
	if rs, err = b.next(); err == nil || len(rs) != 0 || b.position != 1 {
		t.Fatalf("%d records, next %d, %v; want an error", len(rs), b.position, err)
	}
}

// TestHoleIsReported reads two batches with lost ones in between. In a topic that is compacted, that is no fault.
func TestHoleIsReported(t *testing.T) {
	second := testBatch{first: 5, records: []testRecord{{value: []byte("b")}}}
	in := second.write((&testBatch{records: []testRecord{{value: []byte("a")}}}).write(nil))
	b := newBatchReader("t", 3, 0, true)
	b.contiguous = true
	b.startResponse(&kmsg.FetchResponseTopicPartition{RecordBatches: in})
	if rs, err := b.next(); err != nil || len(rs) != 1 || b.position != 1 {
		t.Fatalf("%d records, next %d, %v; want the first, and then 1", len(rs), b.position, err)
	}
	b.startResponse(&kmsg.FetchResponseTopicPartition{RecordBatches: second.write(nil)})
	rs, err := b.next()
	if e, is := errors.AsType[*CorruptError](err); len(rs) != 0 || !is || !e.Gone || e.Offset != 1 || e.Next != 5 {
		t.Fatalf("%d records, %v; want 1 to 4 to be lost", len(rs), err)
	}
	b.seek(3) // also within it
	b.startResponse(&kmsg.FetchResponseTopicPartition{RecordBatches: second.write(nil)})
	if _, err = b.next(); err == nil {
		t.Error("no error within the hole")
	}
	b.contiguous = false
	b.startResponse(&kmsg.FetchResponseTopicPartition{RecordBatches: second.write(nil)})
	if rs, err = b.next(); err != nil || len(rs) != 1 || b.position != 6 {
		t.Errorf("compacted: %d records, next %d, %v", len(rs), b.position, err)
	}
}

// TestReusedBuffersTakeNoMemory checks that a reader with borrowed records reuses its memory and allocates none per
// record.
func TestReusedBuffersTakeNoMemory(t *testing.T) {
	b := testBatch{attributes: uint16(kgo.CodecSnappy), last: 199}
	for i := range 200 {
		b.records = append(b.records, testRecord{offset: int32(i), key: []byte("key"), value: bytes.Repeat([]byte("v"), 300),
			headers: []events.Header{{Key: "ce_type", Value: []byte("x")}, {Key: "ce_id", Value: []byte("y")}}})
	}
	answer := kmsg.FetchResponseTopicPartition{RecordBatches: b.write(nil)}
	in := newBatchReader("t", 3, 0, true)
	read := func() {
		in.seek(0)
		in.startResponse(&answer)
		if rs, err := in.next(); err != nil || len(rs) != 200 || in.position != 200 {
			t.Fatalf("%d records, next %d, %v", len(rs), in.position, err)
		}
	}
	read()
	read() // now the buffers are large enough
	if n := testing.AllocsPerRun(20, read); n > 1 {
		t.Errorf("%v allocations for 200 records", n)
	}
	in.releaseBuffers()
	if in.arena.bytes != nil || in.records != nil {
		t.Error("one that is idle keeps its memory")
	}
	read()
}

func BenchmarkBatches(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	var answer kmsg.FetchResponseTopicPartition
	for first := int64(0); first < 6400; first += 64 {
		batch := testBatch{first: first, attributes: uint16(kgo.CodecSnappy) | attributeTransactional, last: 63}
		for i := range int32(64) {
			value := make([]byte, 400)
			for at := range value {
				value[at] = "abcdefghijklmnopqrstuvwxyz0123456789"[r.IntN(36)]
			}
			copy(value, bytes.Repeat([]byte(`"member":"the same in all"`), 10))
			batch.records = append(batch.records, testRecord{offset: i, key: []byte("order-0000001"), value: value, headers: []events.Header{
				{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_type", Value: []byte("waybill.step.completed.v1")},
				{Key: "ce_source", Value: []byte("waybill.scheduler/local")}, {Key: "ce_id", Value: []byte("order-0000001/7")},
				{Key: "content-type", Value: []byte("application/json")}}})
		}
		answer.RecordBatches = batch.write(answer.RecordBatches)
	}
	b.Run("client", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = asClient(answer, 0)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/6400, "ns/record")
	})
	for name, lend := range map[string]bool{"own": false, "lent": true} {
		b.Run(name, func(b *testing.B) {
			in := newBatchReader("t", 3, 0, lend)
			b.ReportAllocs()
			for b.Loop() {
				in.seek(0)
				in.startResponse(&answer)
				for len(in.rest) > 0 {
					_, _ = in.next()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/6400, "ns/record")
		})
	}
}
