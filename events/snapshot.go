package events

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// The records of waybill.snapshots contain the state of a partition of events, so that a restore needn't read all
// events. Partition p belongs to partition p of events. A key names a chunk ("open/<n>" or "finished/<n>") or is
// "meta". Chunks are written once. The record under "meta" is written last and says which chunks belong to the
// snapshot. Other chunks are from an interrupted snapshot, and the next owner overwrites them.
const (
	TypeSnapshot      = "waybill.snapshot.v1"
	TypeSnapshotChunk = "waybill.snapshot.chunk.v1"

	SnapshotMetaKey = "meta"
	SnapshotFormat  = 1
)

// The kinds of chunk, as they begin keys.
const (
	ChunkOpen     = "open"
	ChunkFinished = "finished"
)

// Chunks names the chunks of a kind in a snapshot, From (inclusive) to To (exclusive). Sum is the sum of their
// checksums (ChunkSum), modulo 2^64.
type Chunks struct {
	From, To uint64
	Sum      uint64
}

// Snapshot is the record under "meta". It describes the state in the chunks. Each task is as of some offset from Next
// to Until, since the chunks may be written over several transactions. A reader skips events that the task already
// reflects, by their seq.
type Snapshot struct {
	Format int
	Next   int64 // offset of the events topic from which to continue reading
	Until  int64 // no task reflects an event at or past it
	State  PartitionState
	// UntilAt is the instant of the event before Until, as State.At is of the event before Next; zero if Until is Next,
	// or unknown. A log without these two events is another one.
	UntilAt time.Time
	// Tasks is the number of open tasks as of Next. IDs is the sum of their IDSums, modulo 2^64. The chunks must match
	// both.
	Tasks int
	IDs   uint64
	// Open names the chunks of open tasks. A task in a later chunk replaces the one in an earlier chunk. Finished names
	// the chunks of finished tasks, in the form of Task.Finished: all that ended before Next, and perhaps some that
	// ended later.
	Open, Finished Chunks
	// FinishedTasks is the number of tasks in Finished. OpenBytes is the size of the open chunks.
	FinishedTasks int64
	OpenBytes     int64
}

func (s *Snapshot) fields(c *codec) {
	c.int("format", &s.Format)
	c.int64("next", &s.Next)
	c.int64("until", &s.Until)
	c.time("until_at", &s.UntilAt)
	state := &s.State
	optional(c, "partition", &state, func(c *codec, p *PartitionState) { p.fields(c) })
	s.State = *state
	c.int("tasks", &s.Tasks)
	c.hex("ids", &s.IDs)
	c.chunks(ChunkOpen, &s.Open)
	c.chunks(ChunkFinished, &s.Finished)
	c.int64("finished_tasks", &s.FinishedTasks)
	c.int64("open_bytes", &s.OpenBytes)
}

func (c *codec) chunks(name string, v *Chunks) {
	read := v
	optional(c, name, &read, func(c *codec, v *Chunks) {
		c.seq("from", &v.From)
		c.seq("to", &v.To)
		c.hex("sum", &v.Sum)
	})
	*v = *read
}

// hex is a member of 64 bits as hexadecimal text, since many readers of JSON lose digits past 2^53.
func (c *codec) hex(name string, v *uint64) {
	text := ""
	if *v != 0 {
		text = strconv.FormatUint(*v, 16)
	}
	c.str(name, &text)
	if !c.decoding || text == "" {
		return
	}
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		c.fail(name, "not a number in hexadecimal")
	}
	*v = n
}

// Record makes the record under "meta" of partition p.
func (s *Snapshot) Record(ns Namespace, source string, p int32) Record {
	id := fmt.Sprintf("waybill.snapshot/%d/%d", p, s.Next)
	return Record{Topic: ns.Snapshots(), Partition: p, Key: []byte(SnapshotMetaKey), Value: encodeObject(s), Headers: CloudHeaders(TypeSnapshot, source, id)}
}

// DecodeSnapshot reads the record under SnapshotMetaKey. It wraps ErrSnapshotFormat if a newer build wrote the record.
func DecodeSnapshot(r *Record) (*Snapshot, error) {
	s := &Snapshot{}
	if err := decodeObject(r.Value, s); err != nil {
		return nil, err
	}
	switch {
	case s.Format > SnapshotFormat:
		return nil, fmt.Errorf("%w: %d, this build knows %d", ErrSnapshotFormat, s.Format, SnapshotFormat)
	case s.Format < 1:
		return nil, badValue("format", "missing")
	case s.Next < 0 || s.Until < s.Next:
		return nil, badValue("until", "before next")
	case s.Open.From > s.Open.To || s.Finished.From > s.Finished.To:
		return nil, badValue("from", "past to")
	}
	return s, nil
}

// Chunk is one record of a snapshot with encoded tasks.
type Chunk struct {
	// Ended are ids of tasks of earlier chunks that have ended.
	Ended []string
	// Tasks are stored forms (Task.Encode).
	Tasks [][]byte
	// Part is a piece of a task that doesn't fit a record; nil: none. A chunk with a part has nothing else.
	Part *Part
}

// ChunkKey returns the key of a chunk.
func ChunkKey(kind string, n uint64) string { return kind + "/" + strconv.FormatUint(n, 10) }

// ParseChunkKey is the inverse of ChunkKey.
func ParseChunkKey(key string) (kind string, n uint64, ok bool) {
	kind, number, found := strings.Cut(key, "/")
	n, err := strconv.ParseUint(number, 10, 64)
	return kind, n, found && err == nil && (kind == ChunkOpen || kind == ChunkFinished) && ChunkKey(kind, n) == key
}

// tasksMember begins the tasks of a chunk. They come last, after their sizes, so a reader finds each task without
// parsing.
const tasksMember = `"tasks":[`

// Encode returns the chunk's value: {"sizes":[...],"ended":[...],"part":{...},"tasks":[...]}. part is omitted if there
// is none.
func (k *Chunk) Encode() []byte {
	total := 64
	if k.Part != nil {
		total += k.Part.encodedBytes()
	}
	for _, t := range k.Tasks {
		total += len(t) + 8
	}
	b := append(make([]byte, 0, total), `{"sizes":[`...)
	for i, t := range k.Tasks {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(len(t)), 10)
	}
	b = append(b, `],"ended":[`...)
	for i, id := range k.Ended {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonscan.AppendString(b, id)
	}
	b = append(b, `],`...)
	if k.Part != nil {
		b = append(appendObject(append(b, `"part":`...), k.Part), ',')
	}
	b = append(b, tasksMember...)
	for i, t := range k.Tasks {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, t...)
	}
	return append(b, `]}`...)
}

// chunkHead holds the members of a chunk before its tasks.
type chunkHead struct {
	sizes []int
	ended []string
	part  *Part
}

func (h *chunkHead) fields(c *codec) {
	c.ints("sizes", &h.sizes)
	c.texts("ended", &h.ended)
	optional(c, "part", &h.part, func(c *codec, p *Part) { p.fields(c) })
}

// DecodeChunk is the inverse of Encode. The tasks alias value. They aren't parsed; DecodeTask does that.
func DecodeChunk(value []byte) (*Chunk, error) {
	// The first closing bracket ends the sizes.
	end := bytes.IndexByte(value, ']')
	if end < 0 {
		return nil, badValue("sizes", "missing")
	}
	h := &chunkHead{}
	if err := decodeObject(append(bytes.Clone(value[:end]), "]}"...), h); err != nil {
		return nil, err
	}
	tail := len("]}") + max(0, len(h.sizes)-1)
	for _, n := range h.sizes {
		if n < len("{}") || n > len(value) {
			return nil, badValue("sizes", "not those of tasks")
		}
		tail += n
	}
	at := len(value) - tail
	if at < end || !bytes.HasSuffix(value[:at], []byte(tasksMember)) || !bytes.HasSuffix(value, []byte("]}")) {
		return nil, badValue("tasks", "not of their sizes")
	}
	sizes := h.sizes
	h = &chunkHead{}
	if err := decodeObject(append(bytes.Clone(value[:at]), "]}"...), h); err != nil {
		return nil, err
	}
	if h.part != nil && (len(sizes) > 0 || len(h.ended) > 0) {
		return nil, badValue("part", "not alone in its chunk")
	}
	k := &Chunk{Ended: h.ended, Part: h.part, Tasks: make([][]byte, 0, len(sizes))}
	for i, n := range sizes {
		if i > 0 && value[at-1] != ',' || value[at] != '{' {
			return nil, badValue("tasks", "not of their sizes")
		}
		k.Tasks = append(k.Tasks, value[at:at+n:at+n])
		at += n + 1
	}
	return k, nil
}

// ChunkRecord makes the record of a chunk. With a nil value it makes the tombstone of a chunk that no snapshot refers
// to.
func ChunkRecord(ns Namespace, source string, p int32, key string, value []byte) Record {
	r := Record{Topic: ns.Snapshots(), Partition: p, Key: []byte(key), Value: value}
	if value != nil {
		r.Headers = CloudHeaders(TypeSnapshotChunk, source, fmt.Sprintf("waybill.snapshot/%d/%s", p, key))
	}
	return r
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ChunkSum returns a checksum (CRC-32C) of a chunk's key and value. It detects another chunk under the key, and
// corruption.
func ChunkSum(key string, value []byte) uint64 {
	return uint64(crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, value))
}

// IDSum returns a task's part of Snapshot.IDs: FNV-1a of its id.
func IDSum(id string) uint64 {
	sum := uint64(14695981039346656037)
	for i := range len(id) {
		sum = (sum ^ uint64(id[i])) * 1099511628211
	}
	return sum
}

// StoredID returns the id from a task's stored form, which begins with it.
func StoredID(stored []byte) (string, error) {
	const begin = `{"id":`
	if len(stored) <= len(begin) || string(stored[:len(begin)]) != begin {
		return "", badValue("id", "not first")
	}
	end, err := jsonscan.SkipString(stored, len(begin))
	if err != nil {
		return "", err
	}
	return jsonscan.Unquote(stored[len(begin):end]), nil
}
