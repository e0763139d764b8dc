package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
)

// Where the fields of a batch stand, in bytes (Kafka's protocol guide, "Record Batch").
const (
	batchLength     = 8 // of what follows it
	batchEpoch      = 12
	batchMagic      = 16
	batchCRC        = 17 // of what follows it
	batchAttributes = 21
	batchLastDelta  = 23
	batchFirstTime  = 27
	batchMaxTime    = 35
	batchProducer   = 43
	batchCount      = 57
	batchRecords    = 61
)

// What the attributes of a batch say.
const (
	attributeCodec         = 0x07
	attributeLogAppendTime = 0x08
	attributeTransactional = 0x10
	attributeControl       = 0x20
)

const (
	// chunkRecords is how many records next returns at least, where there are more: a
	// call has its price, and what a few hundred take stays in a processor's cache.
	chunkRecords = 128
	// arenaMaxBytes is the largest room, in bytes, that is used again.
	arenaMaxBytes = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batches are the record batches of one fetch, which are read some at a time. The client
// can do that too (kgo.ProcessFetchPartition), for all of a fetch at once, and makes every
// header's name and every record's list of headers anew. A test holds the two against each
// other, and BenchmarkBatches says what either takes.
//
// Which transactions were rolled back follows from the list in the answer and from the markers that were
// read since the offset that was fetched. So batches own the position: seek moves it, and every marker
// of an answer is read, also one that lies below the position by then.
type batchReader struct {
	topic     string
	partition int32
	// position is the offset that is read next. Only seek and next change it.
	position    int64
	fetchOffset int64 // the position when rest was fetched: the list of what was rolled back is as of there
	rest        []byte
	advanced    bool // what was fetched has led on: so what can't be read comes again, as the first
	// aborted are the first offsets of the transactions that were rolled back and have not ended below
	// rest, by producer, ascending.
	aborted map[int64][]int64
	// lend: what is returned holds until the next chunk is asked for.
	reuseBuffers bool
	decompress   kgo.Decompressor
	arena        *arena // nil: don't lend
	// epoch is that of the leader that wrote the last batch that was read; negative: unknown.
	epoch int32
	// observe, which may be nil, is told of each batch that was read, as the client's hooks are.
	onBatch func(kgo.FetchBatchMetrics)

	records     []events.Record
	headers     []events.Header
	headerNames []string // of the headers of the record before, in their order
}

// newBatchReader begins at an offset.
func newBatchReader(topic string, partition int32, from int64, lend bool) *batchReader {
	b := &batchReader{topic: topic, partition: partition, position: from, reuseBuffers: lend, epoch: -1}
	if !lend {
		b.decompress = kgo.DefaultDecompressor()
		return b
	}
	b.arena = &arena{}
	b.decompress = kgo.DefaultDecompressor(b.arena)
	return b
}

// room is what batches are decompressed into. It is a pool to the client: of one.
type arena struct {
	bytes  []byte
	used   int
	wanted int // bytes; what would have been enough
}

// GetDecompressBytes lends what is left.
func (m *arena) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte { return m.bytes[m.used:] }

// PutDecompressBytes is called for what couldn't be decompressed.
func (m *arena) PutDecompressBytes([]byte) {}

// take notes that text was decompressed: into the room, or where there was too little, elsewhere.
func (m *arena) claim(text []byte) {
	m.wanted += len(text)
	if left := m.bytes[m.used:]; len(text) > 0 && len(left) >= len(text) && &left[0] == &text[0] {
		m.used += len(text)
	}
}

// reset gives all of it back.
func (m *arena) reset() {
	if m.wanted > len(m.bytes) && len(m.bytes) < arenaMaxBytes {
		m.bytes = make([]byte, min(arenaMaxBytes, m.wanted+m.wanted/4))
	}
	m.used, m.wanted = 0, 0
}

// take begins to read the answer to a fetch at the position.
func (b *batchReader) startResponse(answer *kmsg.FetchResponseTopicPartition) {
	b.rest, b.advanced, b.aborted, b.fetchOffset = answer.RecordBatches, false, nil, b.position
	for _, a := range answer.AbortedTransactions {
		if b.aborted == nil {
			b.aborted = map[int64][]int64{}
		}
		b.aborted[a.ProducerID] = append(b.aborted[a.ProducerID], a.FirstOffset)
	}
	for _, first := range b.aborted {
		slices.Sort(first) // not every broker does
	}
}

// drop forgets what wasn't read.
func (b *batchReader) discardRest() { b.rest = nil }

// seek has an offset read next. What was fetched is kept if the offset lies ahead.
func (b *batchReader) seek(offset int64) {
	if offset < b.position {
		b.discardRest() // some of it was read already, and markers with it
	}
	b.position = offset
}

// idle gives back the memory that is used again. Of many partitions few have something to
// read at once, once all were read to their ends.
func (b *batchReader) releaseBuffers() {
	b.discardRest()
	if b.reuseBuffers {
		b.arena.bytes, b.records, b.headers = nil, nil, nil
	}
}

// next returns some committed records from the position on, of some batches, and moves the position
// behind them. There may be none, where only markers and what was rolled back
// follow. It is called until nothing is left of the fetch. An error leaves the position where
// it is, and drops the rest.
func (b *batchReader) next() ([]events.Record, error) {
	b.resetChunk()
	for len(b.rest) > 0 && len(b.records) < chunkRecords {
		before := b.position
		if err := b.readBatch(); err != nil {
			b.discardRest()
			if len(b.records) > 0 {
				return b.records, nil // it comes again, as the first
			}
			return nil, err
		}
		b.advanced = b.advanced || b.position > before
	}
	return b.records, nil
}

// begin makes room for a chunk.
func (b *batchReader) resetChunk() {
	if !b.reuseBuffers {
		b.records, b.headers = nil, nil
		return
	}
	b.arena.reset()
	b.records, b.headers = b.records[:0], b.headers[:0]
}

// batch reads one, and moves the position behind it.
func (b *batchReader) readBatch() error {
	in := b.rest
	if len(in) <= batchCRC {
		b.discardRest()
		return nil // cut off: it comes whole, with the next fetch
	}
	size := int(int32(binary.BigEndian.Uint32(in[batchLength:]))) + batchEpoch
	if size < 0 || size > len(in) {
		b.discardRest()
		return nil
	}
	magic := in[batchMagic]
	if size <= batchCRC || magic == 2 && size < batchRecords {
		return errors.New("a record batch is too short for its head")
	}
	if magic != 2 {
		return b.readMessageSet(size)
	}
	b.rest, in = in[size:], in[:size]
	if sum := binary.BigEndian.Uint32(in[batchCRC:]); sum != crc32.Checksum(in[batchAttributes:], castagnoli) {
		h := parseHeader(in)
		keys, all := keysOf(in)
		return &DamagedError{Topic: b.topic, Partition: b.partition, Offset: h.first, Next: h.last + 1, Keys: keys, AllKeys: all}
	}
	h := parseHeader(in)
	if h.last < b.position && (h.last < b.fetchOffset || !h.control) {
		return nil // what it holds lies before what was asked for, or sought, and it ends no transaction
	}
	text := in[batchRecords:]
	if codec := kgo.CompressionCodecType(h.attributes & attributeCodec); codec != kgo.CodecNone {
		var err error
		if text, err = b.decompress.Decompress(text, codec); err != nil {
			if b.advanced {
				b.discardRest()
				return nil // cut off, perhaps: it comes again, as the first
			}
			return fmt.Errorf("decompress the record batch at %d: %w", h.first, err)
		}
		if b.reuseBuffers {
			b.arena.claim(text)
		}
	}
	if err := b.parseRecords(&h, text); err != nil {
		return err
	}
	b.epoch = h.epoch
	if b.onBatch != nil {
		b.onBatch(kgo.FetchBatchMetrics{NumRecords: h.count, UncompressedBytes: len(text), CompressedBytes: size - batchRecords, CompressionType: uint8(h.attributes & attributeCodec)})
	}
	return nil
}

// The bytes of a record batch: its head, and where what its checksum sums up begins.
const (
	BatchHeaderBytes   = batchRecords
	BatchChecksumStart = batchAttributes
)

// BatchHeader is what a record batch says of itself, as far as one who looks through a log
// needs it.
type BatchHeader struct {
	Size        int64 // bytes of the batch, this head's among them
	First, Last int64 // offsets
	Magic       byte  // 2, or it isn't a batch of today's
	Sum         uint32
}

// ParseBatchHeader reads BatchHeaderBytes of a batch; there must be as many. What they say may be
// anything.
func ParseBatchHeader(in []byte) BatchHeader {
	h := parseHeader(in)
	return BatchHeader{batchEpoch + int64(int32(binary.BigEndian.Uint32(in[batchLength:]))), h.first, h.last, in[batchMagic], binary.BigEndian.Uint32(in[batchCRC:])}
}

// head is what is needed of a batch's.
type batchHeader struct {
	first, last        int64 // offsets
	firstTime, maxTime int64 // ms
	producer           int64
	count              int
	epoch              int32 // of the leader that wrote it
	attributes         uint16
	control, aborted   bool
}

func parseHeader(in []byte) batchHeader {
	h := batchHeader{first: int64(binary.BigEndian.Uint64(in)), attributes: binary.BigEndian.Uint16(in[batchAttributes:]),
		firstTime: int64(binary.BigEndian.Uint64(in[batchFirstTime:])), maxTime: int64(binary.BigEndian.Uint64(in[batchMaxTime:])),
		producer: int64(binary.BigEndian.Uint64(in[batchProducer:])), epoch: int32(binary.BigEndian.Uint32(in[batchEpoch:])), count: int(int32(binary.BigEndian.Uint32(in[batchCount:])))}
	h.last = h.first + int64(int32(binary.BigEndian.Uint32(in[batchLastDelta:])))
	h.control = h.attributes&attributeControl != 0
	return h
}

// unpack reads the records of a batch.
func (b *batchReader) parseRecords(h *batchHeader, text []byte) error {
	switch {
	case h.count < 0:
		return fmt.Errorf("the record batch at %d says that it holds %d records", h.first, h.count)
	case h.count > len(text) && len(text) == 0:
		return fmt.Errorf("the record batch at %d says that it holds %d records, and holds none", h.first, h.count)
	}
	if first := b.aborted[h.producer]; len(first) > 0 && h.attributes&attributeTransactional != 0 && h.first >= first[0] {
		h.aborted = true
	}
	count := min(h.count, len(text)) // each takes a byte at least
	if !h.control && !h.aborted {
		b.records = slices.Grow(b.records, count)
	}
	read, ended := 0, false
	for ; read < count; read++ {
		r, taken := b.parseRecord(h, text)
		if taken == 0 {
			break
		}
		text = text[taken:]
		if r.Offset >= b.position {
			b.position = r.Offset + 1
			if !h.control && !h.aborted {
				b.records = append(b.records, r)
			}
		}
		// A marker has the number of its kind in its key: 0 ends what is rolled back.
		if h.control && h.aborted && !ended && len(r.Key) >= 4 && r.Key[2] == 0 && r.Key[3] == 0 {
			b.aborted[h.producer] = b.aborted[h.producer][1:]
			ended = true
		}
	}
	if read == count {
		// Compaction takes records and leaves the batch's last offset (KAFKA-5443).
		b.position = max(b.position, h.last+1)
	}
	return nil
}

// record reads the first record of text; taken is how many bytes of it, 0: it is cut off.
func (b *batchReader) parseRecord(h *batchHeader, text []byte) (r events.Record, taken int) {
	length, used := kbin.Varint(text)
	if used <= 0 || length < 1 || len(text)-used < int(length) {
		return r, 0
	}
	in := recordFields{rest: text[used+1 : used+int(length)]} // the first byte is for attributes, of which there are none
	later, offset := in.varlong(), in.varint()
	r.Topic, r.Partition, r.Key, r.Value = b.topic, b.partition, in.bytes(), in.bytes()
	r.Headers = b.parseHeaders(&in)
	if in.truncated {
		return r, 0
	}
	r.Offset = h.first + int64(offset)
	ms := h.firstTime + later
	if h.attributes&attributeLogAppendTime != 0 {
		ms = h.maxTime
	}
	r.Time = time.Unix(0, ms*int64(time.Millisecond))
	return r, used + int(length)
}

// fields are those of a record, one after another.
type recordFields struct {
	rest      []byte
	truncated bool // it ended too early, or a number has no end
}

// number reads one of 32 bits. Most have one byte.
func (f *recordFields) varint() int32 {
	if len(f.rest) > 0 && f.rest[0] < 0x80 {
		x := f.rest[0]
		f.rest = f.rest[1:]
		return int32(x>>1) ^ -int32(x&1)
	}
	return f.varintSlow()
}

func (f *recordFields) varintSlow() int32 {
	x, used := kbin.Varint(f.rest)
	f.skip(used)
	return x
}

// long reads a number of 64 bits.
func (f *recordFields) varlong() int64 {
	x, used := kbin.Varlong(f.rest)
	f.skip(used)
	return x
}

func (f *recordFields) skip(used int) {
	if used <= 0 {
		f.truncated, f.rest = true, nil
		return
	}
	f.rest = f.rest[used:]
}

// bytes reads how many, and those; nil: there are none, not even an empty text.
func (f *recordFields) bytes() []byte {
	n := int(f.varint())
	switch {
	case n < 0:
		return nil
	case n > len(f.rest):
		f.truncated, f.rest = true, nil
		return nil
	}
	b := f.rest[:n:n]
	f.rest = f.rest[n:]
	return b
}

// parseHeaders reads the headers of a record. Those of the next record mostly have the same
// names.
func (b *batchReader) parseHeaders(in *recordFields) []events.Header {
	n := int(in.varint())
	if n > len(in.rest) { // each takes two bytes at least
		in.truncated = true
	}
	if n <= 0 || in.truncated {
		return nil
	}
	from := len(b.headers)
	for i := range n {
		name, value := in.bytes(), in.bytes()
		if in.truncated {
			return nil
		}
		if i == len(b.headerNames) {
			b.headerNames = append(b.headerNames, "")
		}
		if b.headerNames[i] != string(name) {
			b.headerNames[i] = string(name)
		}
		b.headers = append(b.headers, events.Header{Key: b.headerNames[i], Value: value})
	}
	return b.headers[from:len(b.headers):len(b.headers)]
}

// old reads a message set as the client does: a topic that came from a cluster before Kafka
// 0.11 may still hold some.
func (b *batchReader) readMessageSet(size int) error {
	answer := kmsg.NewFetchResponseTopicPartition()
	answer.Partition, answer.RecordBatches = b.partition, b.rest[:size]
	fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: b.position, IsolationLevel: kgo.ReadCommitted(), Topic: b.topic, Partition: b.partition,
	}, &answer, kgo.DefaultDecompressor(), nil)
	if fetched.Err != nil {
		return fetched.Err
	}
	b.rest = b.rest[size:]
	b.records, b.epoch = fromKgo(fetched.Records, b.records), -1
	b.position = max(b.position, next)
	return nil
}
