package replay

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
)

// FileVersion is that of the format of exported files. A reader takes no other.
const FileVersion = 1

// lineMaxBytes bounds one record as a line: a record is below 1 MB, and quoting
// makes at most six bytes of one.
const lineMaxBytes = 8 << 20

// Head is the first line of an exported file: where its records are from.
type Head struct {
	Version    int              `json:"waybill_export"`
	Namespace  events.Namespace `json:"namespace"`
	Partitions int32            `json:"partitions"` // of events
}

// line is a record of the events topic as a line of JSON. Key, value and headers
// are the record's bytes as text, or as base64 where they aren't UTF-8: the chain
// of prev is over the bytes.
type line struct {
	Partition int32       `json:"partition"`
	Offset    string      `json:"offset"`
	Timestamp string      `json:"timestamp"`
	Key       *string     `json:"key"`
	Headers   [][2]string `json:"headers"`
	Value     *string     `json:"value"`
	Base64    bool        `json:"base64,omitempty"` // key, value and the headers' values
	Sum       string      `json:"crc32c,omitempty"` // of the record: see sumOf
}

// Writer writes an exported file. One goroutine uses it.
type Writer struct{ out *json.Encoder }

// NewWriter writes the head.
func NewWriter(out io.Writer, h Head) (*Writer, error) {
	w := &Writer{json.NewEncoder(out)}
	w.out.SetEscapeHTML(false)
	h.Version = FileVersion
	return w, w.out.Encode(h)
}

// Write adds a record of the events topic, byte for byte.
func (w *Writer) Write(r *events.Record) error {
	l := line{Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10), Timestamp: r.Time.UTC().Format(events.TimeLayout), Headers: [][2]string{}}
	l.Base64 = !utf8.Valid(r.Key) || !utf8.Valid(r.Value)
	for _, h := range r.Headers {
		l.Base64 = l.Base64 || !utf8.Valid(h.Value)
	}
	l.Key, l.Value = l.text(r.Key), l.text(r.Value)
	for _, h := range r.Headers {
		l.Headers = append(l.Headers, [2]string{h.Key, *l.text(append([]byte{}, h.Value...))})
	}
	l.Sum = sumText(r)
	return w.out.Encode(l)
}

func (l *line) text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	if l.Base64 {
		s = base64.StdEncoding.EncodeToString(b)
	}
	return &s
}

func (l *line) bytes(s *string) ([]byte, error) {
	switch {
	case s == nil:
		return nil, nil
	case l.Base64:
		return base64.StdEncoding.DecodeString(*s)
	}
	return []byte(*s), nil
}

// Reader reads what a Writer wrote. One goroutine uses it.
type Reader struct {
	// Changed, if set, is told by Each of a record that isn't as it was exported, before it is
	// given; if not, Each ends with that error.
	Changed func(*ChangedError)

	head  Head
	lines *bufio.Scanner
	line  int
	last  map[int32]int64 // offset, by partition
}

// NewReader reads the head. An error says why the file is none.
func NewReader(in io.Reader) (*Reader, error) {
	f := &Reader{lines: bufio.NewScanner(in), last: map[int32]int64{}}
	f.lines.Buffer(nil, lineMaxBytes)
	return f, f.readHead()
}

// Head says where the records are from.
func (f *Reader) Head() Head { return f.head }

// Each gives fn the records that follow, with the topic that they have in the
// head's namespace. Those of a partition must be in the order of their offsets.
// An error names the line.
func (f *Reader) Each(fn func(*events.Record) error) error {
	for {
		r, intact, err := f.record()
		if err == nil && !intact {
			changed := changedAt(f.line, r)
			if f.Changed == nil {
				return changed
			}
			f.Changed(changed)
		}
		if err == nil {
			err = fn(r)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("line %d: %w", f.line, err)
		}
	}
}

// next is the next line that isn't blank; io.EOF after the last.
func (f *Reader) next() ([]byte, error) {
	for f.lines.Scan() {
		f.line++
		if b := bytes.TrimSpace(f.lines.Bytes()); len(b) > 0 {
			return b, nil
		}
	}
	if err := f.lines.Err(); err != nil {
		f.line++
		return nil, err
	}
	return nil, io.EOF
}

func (f *Reader) readHead() error {
	b, err := f.next()
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty: `waybill export` writes at least a first line")
	}
	if err == nil {
		err = json.Unmarshal(b, &f.head)
	}
	switch h := &f.head; {
	case err != nil:
		return fmt.Errorf("line %d: not what `waybill export` writes: %w", f.line, err)
	case h.Version == 0:
		return fmt.Errorf("line %d: not what `waybill export` writes: its first line names waybill_export, namespace and partitions", f.line)
	case h.Version != FileVersion:
		return fmt.Errorf("line %d: an export of version %d; this build reads version %d", f.line, h.Version, FileVersion)
	case h.Partitions <= 0:
		return fmt.Errorf("line %d: %d partitions", f.line, h.Partitions)
	case strings.ContainsFunc(string(h.Namespace), notInTopicName): // what is said of a record names its topic
		return fmt.Errorf("line %d: the namespace %q can't be one", f.line, h.Namespace)
	}
	return nil
}

func notInTopicName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
}

// record is the next, and whether it is as it was exported.
func (f *Reader) record() (*events.Record, bool, error) {
	b, err := f.next()
	if err != nil {
		return nil, false, err
	}
	r, intact, err := f.head.parse(b)
	if err == nil {
		err = f.inOrder(&r)
	}
	if err != nil {
		return nil, false, err
	}
	return &r, intact, nil
}

// inOrder refuses a record that doesn't come after those of its partition.
func (f *Reader) inOrder(r *events.Record) error {
	if last, seen := f.last[r.Partition]; seen && r.Offset <= last {
		return fmt.Errorf("partition %d: offset %d after %d: records must stand in the log's order, each once", r.Partition, r.Offset, last)
	}
	f.last[r.Partition] = r.Offset
	return nil
}

// parse reads a line that is a record, and says whether it is as it was exported.
func (h *Head) parse(b []byte) (r events.Record, intact bool, err error) {
	r, sum, ok := h.parseWritten(b)
	if !ok {
		if r, sum, err = h.parseJSON(b); err != nil {
			return r, false, err
		}
	}
	intact, err = sums(sum, &r)
	return r, intact, err
}

// parseJSON reads any line that is a record, and its sum; empty: it has none.
func (h *Head) parseJSON(b []byte) (r events.Record, sum string, err error) {
	var l line
	if err := json.Unmarshal(b, &l); err != nil {
		return r, "", err
	}
	r, err = h.record(&l)
	return r, l.Sum, err
}

func (h *Head) record(l *line) (r events.Record, err error) {
	r = events.Record{Topic: h.Namespace.Events(), Partition: l.Partition, Headers: make([]events.Header, 0, len(l.Headers))}
	if l.Partition < 0 || l.Partition >= h.Partitions {
		return r, fmt.Errorf("partition %d of %d", l.Partition, h.Partitions)
	}
	if r.Offset, err = strconv.ParseInt(l.Offset, 10, 64); err != nil {
		return r, fmt.Errorf("offset %q: %w", l.Offset, err)
	}
	if r.Time, err = time.Parse(events.TimeLayout, l.Timestamp); err != nil {
		return r, fmt.Errorf("timestamp: %w", err)
	}
	if r.Key, err = l.bytes(l.Key); err != nil {
		return r, fmt.Errorf("key: %w", err)
	}
	if r.Value, err = l.bytes(l.Value); err != nil {
		return r, fmt.Errorf("value: %w", err)
	}
	for _, h := range l.Headers {
		v, err := l.bytes(&h[1])
		if err != nil {
			return r, fmt.Errorf("header %q: %w", h[0], err)
		}
		r.Headers = append(r.Headers, events.Header{Key: h[0], Value: v})
	}
	return r, nil
}
