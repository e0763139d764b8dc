package logreader

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
	"github.com/waybill-run/waybill/internal/kafka"
)

// Byte offsets of the fields of a record batch (Kafka's protocol guide, "Record Batch").
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

// Bits of a batch's attributes.
const (
	attributeCodec         = 0x07
	attributeLogAppendTime = 0x08
	attributeTransactional = 0x10
	attributeControl       = 0x20
)

const (
	// chunkRecords is the least number of records that next returns if more follow. It amortizes the call,
	// and a few hundred records still fit a processor's cache.
	chunkRecords = 128
	// arenaMaxBytes bounds an arena that is reused.
	arenaMaxBytes = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batchReader decodes the record batches of a fetch response in chunks. The client can decode them too
// (kgo.ProcessFetchPartition), but only a whole response at once, and it allocates every header name and
// every list of headers. A test compares the two, and BenchmarkBatches measures both.
//
// The aborted transactions follow from the list in the response and from the markers since the fetch offset.
// So the reader owns the position: only seek and next move it, and it reads every marker of a response, even
// one below the position.
type batchReader struct {
	topic     string
	partition int32
	// position is the next offset to read. Only seek and next change it.
	position    int64
	fetchOffset int64 // the position of the fetch; aborted starts there
	rest        []byte
	// advanced: this response has advanced the position. A batch that can't be decoded will then be the first of the
	// next response.
	advanced bool
	// aborted are the first offsets of the aborted transactions that have not ended before rest, by
	// producer, ascending.
	aborted map[int64][]int64
	// contiguous: the topic isn't compacted, so its batches have every offset (see reader.skipEmpty).
	contiguous bool
	// reuseBuffers: returned records are valid until the next chunk.
	reuseBuffers bool
	decompress   kgo.Decompressor
	arena        *arena // nil without reuseBuffers
	// epoch is the leader epoch of the last batch that was read; negative: unknown.
	epoch int32
	// onBatch, if set, is called for each batch that was read, like the client's hooks.
	onBatch func(kgo.FetchBatchMetrics)

	records     []events.Record
	headers     []events.Header
	headerNames []string // interned header names of the previous record, in order
}

// newBatchReader returns a reader that begins at an offset.
func newBatchReader(topic string, partition int32, from int64, reuse bool) *batchReader {
	b := &batchReader{topic: topic, partition: partition, position: from, reuseBuffers: reuse, epoch: -1}
	if !reuse {
		b.decompress = kgo.DefaultDecompressor()
		return b
	}
	b.arena = &arena{}
	b.decompress = kgo.DefaultDecompressor(b.arena)
	return b
}

// arena is the memory that batches are decompressed into. To the client it is a pool with one buffer.
type arena struct {
	bytes  []byte
	used   int
	wanted int // bytes that would have been enough
}

// GetDecompressBytes returns the rest of the arena.
func (m *arena) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte { return m.bytes[m.used:] }

// PutDecompressBytes is called after a failed decompression.
func (m *arena) PutDecompressBytes([]byte) {}

// claim records that text was decompressed, into the arena or, if it was too small, into other memory.
func (m *arena) claim(text []byte) {
	m.wanted += len(text)
	if left := m.bytes[m.used:]; len(text) > 0 && len(left) >= len(text) && &left[0] == &text[0] {
		m.used += len(text)
	}
}

// reset frees the arena for the next chunk, and grows it if it was too small.
func (m *arena) reset() {
	if m.wanted > len(m.bytes) && len(m.bytes) < arenaMaxBytes {
		m.bytes = make([]byte, min(arenaMaxBytes, m.wanted+m.wanted/4))
	}
	m.used, m.wanted = 0, 0
}

// startResponse begins with the response to a fetch at the position.
func (b *batchReader) startResponse(answer *kmsg.FetchResponseTopicPartition) {
	b.rest, b.advanced, b.aborted, b.fetchOffset = answer.RecordBatches, false, nil, b.position
	for _, a := range answer.AbortedTransactions {
		if b.aborted == nil {
			b.aborted = map[int64][]int64{}
		}
		b.aborted[a.ProducerID] = append(b.aborted[a.ProducerID], a.FirstOffset)
	}
	for _, first := range b.aborted {
		slices.Sort(first) // not every broker sorts them
	}
}

// discardRest drops what wasn't read.
func (b *batchReader) discardRest() { b.rest = nil }

// seek sets the next offset to read. The response is kept if the offset lies ahead.
func (b *batchReader) seek(offset int64) {
	if offset < b.position {
		b.discardRest() // some of its markers were read already
	}
	b.position = offset
}

// releaseBuffers frees the reused memory. Once all partitions were read to their ends, few of many need it
// at the same time.
func (b *batchReader) releaseBuffers() {
	b.discardRest()
	if b.reuseBuffers {
		b.arena.bytes, b.records, b.headers = nil, nil, nil
	}
}

// next returns the next committed records and moves the position behind them. It returns none if only markers and
// aborted records follow. Call it until nothing is left of the response. An error keeps the position and
// drops the rest.
func (b *batchReader) next() ([]events.Record, error) {
	b.resetChunk()
	for len(b.rest) > 0 && len(b.records) < chunkRecords {
		before := b.position
		if err := b.readBatch(); err != nil {
			b.discardRest()
			if len(b.records) > 0 {
				return b.records, nil // the next fetch begins with this batch
			}
			return nil, err
		}
		b.advanced = b.advanced || b.position > before
	}
	return b.records, nil
}

// resetChunk prepares the buffers for the next chunk.
func (b *batchReader) resetChunk() {
	if !b.reuseBuffers {
		b.records, b.headers = nil, nil
		return
	}
	b.arena.reset()
	b.records, b.headers = b.records[:0], b.headers[:0]
}

// readBatch decodes one batch and moves the position behind it.
func (b *batchReader) readBatch() error {
	in := b.rest
	if len(in) <= batchCRC {
		b.discardRest()
		return nil // the response ends within the batch; the next fetch has it whole
	}
	size := int(int32(binary.BigEndian.Uint32(in[batchLength:]))) + batchEpoch
	if size < 0 || size > len(in) {
		b.discardRest()
		return nil
	}
	magic := in[batchMagic]
	if size <= batchCRC || magic == 2 && size < batchRecords {
		return errors.New("a record batch is too short for its header")
	}
	if magic != 2 {
		return b.readMessageSet(size)
	}
	b.rest, in = in[size:], in[:size]
	if sum := binary.BigEndian.Uint32(in[batchCRC:]); sum != crc32.Checksum(in[batchAttributes:], castagnoli) {
		h := parseHeader(in)
		keys, all := keysOf(in)
		return &CorruptError{Topic: b.topic, Partition: b.partition, Offset: h.first, Next: h.last + 1, Keys: keys, AllKeys: all}
	}
	h := parseHeader(in)
	if b.contiguous && h.first > b.position {
		return &CorruptError{Topic: b.topic, Partition: b.partition, Offset: b.position, Next: h.first, Gone: true}
	}
	if h.last < b.position && (h.last < b.fetchOffset || !h.control) {
		return nil // it lies below the position, and ends no transaction
	}
	text := in[batchRecords:]
	if codec := kgo.CompressionCodecType(h.attributes & attributeCodec); codec != kgo.CodecNone {
		var err error
		if text, err = b.decompress.Decompress(text, codec); err != nil {
			if b.advanced {
				b.discardRest()
				return nil // the response may end within it; the next fetch begins with it
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

// Sizes in a record batch, in bytes: its header, and the offset from which its checksum is computed.
const (
	BatchHeaderBytes   = batchRecords
	BatchChecksumStart = batchAttributes
)

// BatchHeader is the part of a record batch's header that a check of a log needs.
type BatchHeader struct {
	Size        int64 // bytes of the batch, with this header
	First, Last int64 // offsets
	Magic       byte  // 2 for all batches since Kafka 0.11
	Sum         uint32
}

// ParseBatchHeader decodes the first BatchHeaderBytes of in, which must have as many. It checks nothing.
func ParseBatchHeader(in []byte) BatchHeader {
	h := parseHeader(in)
	return BatchHeader{batchEpoch + int64(int32(binary.BigEndian.Uint32(in[batchLength:]))), h.first, h.last, in[batchMagic], binary.BigEndian.Uint32(in[batchCRC:])}
}

// batchHeader is the decoded header of a batch.
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

// parseRecords decodes the records of a batch.
func (b *batchReader) parseRecords(h *batchHeader, text []byte) error {
	switch {
	case h.count < 0:
		return fmt.Errorf("the record batch at %d claims %d records", h.first, h.count)
	case h.count > len(text) && len(text) == 0:
		return fmt.Errorf("the record batch at %d claims %d records and is empty", h.first, h.count)
	}
	if first := b.aborted[h.producer]; len(first) > 0 && h.attributes&attributeTransactional != 0 && h.first >= first[0] {
		h.aborted = true
	}
	count := min(h.count, len(text)) // a record has at least one byte
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
		// A marker has its type in its key: 0 is an abort.
		if h.control && h.aborted && !ended && len(r.Key) >= 4 && r.Key[2] == 0 && r.Key[3] == 0 {
			b.aborted[h.producer] = b.aborted[h.producer][1:]
			ended = true
		}
	}
	if read == count {
		// Compaction removes records and keeps the batch's last offset (KAFKA-5443).
		b.position = max(b.position, h.last+1)
	}
	return nil
}

// parseRecord decodes the first record of text; taken is its size in bytes, 0 if it is truncated.
func (b *batchReader) parseRecord(h *batchHeader, text []byte) (r events.Record, taken int) {
	length, used := kbin.Varint(text)
	if used <= 0 || length < 1 || len(text)-used < int(length) {
		return r, 0
	}
	in := recordFields{rest: text[used+1 : used+int(length)]} // the first byte has attributes, which are unused
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

// recordFields decodes the fields of a record one after another.
type recordFields struct {
	rest      []byte
	truncated bool // the record ended within a field
}

// varint decodes a zigzag varint of 32 bits. Most have one byte.
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

// varlong decodes a zigzag varint of 64 bits.
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

// bytes decodes a length and as many bytes; nil for the length -1, which means null.
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

// parseHeaders decodes the headers of a record. Most records have the same header names as the one before.
func (b *batchReader) parseHeaders(in *recordFields) []events.Header {
	n := int(in.varint())
	if n > len(in.rest) { // a header has at least two bytes
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

// readMessageSet decodes a message set with the client: topics from a cluster before Kafka 0.11 may still
// hold some.
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
	b.records, b.epoch = kafka.FromKgo(fetched.Records, b.records), -1
	b.position = max(b.position, next)
	return nil
}
