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
	"github.com/waybill-run/waybill/internal/text"
)

// FileVersion is the version of the format of exported files. A reader accepts no other.
const FileVersion = 1

// lineMaxBytes bounds a record as a line: a record is below 1 MB, and escapes turn one byte into at most six.
const lineMaxBytes = 8 << 20

// Head is the first line of an exported file: the origin of its records.
type Head struct {
	Version    int              `json:"waybill_export"`
	Namespace  events.Namespace `json:"namespace"`
	Partitions int32            `json:"partitions"` // of events
}

// headLine is the head as it is written.
type headLine struct {
	Head
	// Count is set if there is no record, since the head is then the last line.
	Count *int64 `json:"count,omitempty"`
	Without
	Sum string `json:"crc32c,omitempty"` // checksum of the other fields; whoever edits a head on purpose removes it
}

// Without is what an exported file lacks because events were unreadable. The zero value: nothing.
type Without struct {
	Tasks []string `json:"left_out,omitempty"`
	// Lost describes what was unreadable. If its tasks are unknown, it may belong to tasks other than Tasks.
	Lost []string `json:"lost,omitempty"`
}

func (w *Without) Error() string {
	what := fmt.Sprintf("it was exported without %d tasks, because events of them couldn't be read", len(w.Tasks))
	if len(w.Tasks) == 1 {
		what = fmt.Sprintf("it was exported without the task %q, because events of it couldn't be read", w.Tasks[0])
	}
	return what + ": " + strings.Join(w.Lost, "; ")
}

// line is a record of the events topic as a line of JSON. Key, value and headers are the record's bytes as text,
// or as base64 if they aren't UTF-8, since the hash chain covers the bytes.
type line struct {
	Partition int32       `json:"partition"`
	Offset    string      `json:"offset"`
	Timestamp string      `json:"timestamp"`
	Key       *string     `json:"key"`
	Headers   [][2]string `json:"headers"`
	Value     *string     `json:"value"`
	Base64    bool        `json:"base64,omitempty"` // key, value and the headers' values
	Sum       string      `json:"crc32c,omitempty"` // of the record: see sumOf
	Count     *int64      `json:"count,omitempty"`  // number of all records; only in the last line
}

// Writer writes an exported file, which is complete once End has returned. One goroutine uses it.
type Writer struct {
	out   *json.Encoder
	head  headLine
	last  line // pending, since only the last line has the count
	count int64
}

// NewWriter starts a file. Its head is written with the first record, or by End.
func NewWriter(out io.Writer, h Head) *Writer {
	h.Version = FileVersion
	w := &Writer{out: json.NewEncoder(out), head: headLine{Head: h}}
	w.out.SetEscapeHTML(false)
	return w
}

// SetWithout makes the head name what the file lacks. It must be called before the first record.
func (w *Writer) SetWithout(what Without) { w.head.Without = what }

// Write adds a record of the events topic, byte for byte. It doesn't retain r. It writes the previous record.
func (w *Writer) Write(r *events.Record) error {
	if err := w.writePending(); err != nil {
		return err
	}
	w.last = lineOf(r)
	w.count++
	return nil
}

// End writes the last line, which has the number of records. It is called once, after all records.
func (w *Writer) End() error {
	if w.last.Count = &w.count; w.count == 0 {
		w.head.Count = &w.count
	}
	return w.writePending()
}

// writePending writes the previous record.
func (w *Writer) writePending() error {
	if w.count == 0 {
		w.head.Sum = hexSum(w.head.sum())
		return w.out.Encode(&w.head)
	}
	return w.out.Encode(&w.last)
}

func lineOf(r *events.Record) line {
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
	return l
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
	// Changed, if set, is called by Each for a line that differs from what was exported, before its record is passed.
	// If nil, Each ends with that error.
	Changed func(*ChangedError)

	head          headLine
	changed       *ChangedError // the head differs from what was exported; nil: it doesn't
	lines         *bufio.Scanner
	line          int
	at, next      int64           // byte offsets of the last line that was read, and after it
	last          map[int32]int64 // offset, by partition
	count         int64           // of records read
	declaredCount int64           // number of records according to the last line; unknownCount: not read yet
}

// unknownCount is the count of a line that isn't the last.
const unknownCount = -1

// NewReader reads the head. It fails if the file isn't an exported file.
func NewReader(in io.Reader) (*Reader, error) {
	f := &Reader{lines: bufio.NewScanner(in), last: map[int32]int64{}, declaredCount: unknownCount}
	f.lines.Buffer(nil, lineMaxBytes)
	f.lines.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		n, line, err := bufio.ScanLines(data, atEOF)
		f.at, f.next = f.next, f.next+int64(n)
		return n, line, err
	})
	return f, f.readHead()
}

// Position is where the line of the last record begins, in bytes from the file's start. ReadAt reads it again.
func (f *Reader) Position() int64 { return f.at }

// ReadAt reads a record of a file with this head, from a position that Reader.Position returned.
func (h Head) ReadAt(file io.ReaderAt, position int64) (events.Record, error) {
	in := bufio.NewReader(io.NewSectionReader(file, position, lineMaxBytes))
	b, err := in.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return events.Record{}, err
	}
	p, err := h.parse(bytes.TrimSpace(b), 0)
	return p.r, err
}

// Head returns the origin of the records.
func (f *Reader) Head() Head { return f.head.Head }

// Without returns what the file lacked when it was exported; nil: nothing.
func (f *Reader) Without() *Without {
	if len(f.head.Tasks)+len(f.head.Lost) == 0 {
		return nil
	}
	return &f.head.Without
}

// ChangedHead reports that the head differs from what was exported; nil: it doesn't, or it has no checksum.
func (f *Reader) ChangedHead() *ChangedError { return f.changed }

// Each passes the following records to fn, with their topic in the head's namespace. Records of a partition must be in
// the order of their offsets. Errors name the line. A *CutError is returned after all remaining records were passed.
func (f *Reader) Each(fn func(*events.Record) error) error {
	if err := f.reportChanged(f.changed); err != nil {
		return err
	}
	for {
		p, err := f.nextRecord()
		if err == nil {
			if err := f.reportChanged(p.changed); err != nil {
				return err
			}
			err = fn(&p.r)
		}
		switch {
		case errors.Is(err, io.EOF):
			return f.checkComplete()
		case err != nil:
			return fmt.Errorf("line %d: %w", f.line, err)
		}
	}
}

// reportChanged calls Changed if the line has changed. Without a callback it returns the error.
func (f *Reader) reportChanged(changed *ChangedError) error {
	switch {
	case changed == nil:
		return nil
	case f.Changed == nil:
		return changed
	}
	f.Changed(changed)
	return nil
}

// nextLine reads the next line that isn't blank; io.EOF after the last.
func (f *Reader) nextLine() ([]byte, error) {
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
	b, err := f.nextLine()
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
	case h.Count != nil && *h.Count < 0:
		return fmt.Errorf("line %d: a count of %d events", f.line, *h.Count)
	case strings.ContainsFunc(string(h.Namespace), notInTopicName): // messages about a record name its topic
		return fmt.Errorf("line %d: the namespace %q can't be one", f.line, h.Namespace)
	}
	if f.head.Count != nil {
		f.declaredCount = *f.head.Count
	}
	intact, err := sumsUp(f.head.Sum, f.head.sum())
	if err != nil {
		return fmt.Errorf("line %d: %w", f.line, err)
	}
	if !intact {
		f.changed = &ChangedError{Line: f.line, Head: true}
	}
	return nil
}

func notInTopicName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
}

// parsed is a line as a record.
type parsed struct {
	r       events.Record
	sum     string        // empty: it has none
	count   int64         // from the line; unknownCount: none
	changed *ChangedError // set if the line differs from what was exported
}

// nextRecord reads the next record.
func (f *Reader) nextRecord() (*parsed, error) {
	b, err := f.nextLine()
	if err != nil {
		return nil, err
	}
	p, err := f.head.parse(b, f.line)
	if err == nil {
		err = f.checkOrder(&p)
	}
	return &p, err
}

// checkOrder rejects a record that doesn't follow those of its partition, or that follows the last line.
func (f *Reader) checkOrder(p *parsed) error {
	if f.declaredCount != unknownCount {
		return fmt.Errorf("it follows the last line, which says that there are %d events", f.declaredCount)
	}
	if last, seen := f.last[p.r.Partition]; seen && p.r.Offset <= last {
		return fmt.Errorf("partition %d: offset %d after %d: records must stand in the log's order, each once", p.r.Partition, p.r.Offset, last)
	}
	f.last[p.r.Partition] = p.r.Offset
	f.count++
	f.declaredCount = p.count
	return nil
}

// CutError says that a file is incomplete: lines are missing.
type CutError struct {
	Line int   // number of the last line
	Have int64 // records
	Had  int64 // number of records exported; negative: unknown, since the last line is missing
}

func (e *CutError) Error() string {
	if e.Had < 0 {
		return fmt.Sprintf("it was cut off after line %d: the last line, which says how many events there are, is missing, and perhaps others", e.Line)
	}
	return fmt.Sprintf("lines are missing: it has %s, and had %d when it was exported", text.Count(e.Have, "event"), e.Had)
}

// checkComplete returns a *CutError if the file, which was read to its end, is incomplete.
func (f *Reader) checkComplete() error {
	if f.declaredCount == f.count {
		return nil
	}
	return &CutError{f.line, f.count, f.declaredCount}
}

// parse parses a line that is a record. number is that of the line.
func (h *Head) parse(b []byte, number int) (p parsed, err error) {
	p, ok := h.parseFast(b)
	if !ok {
		if p, err = h.parseJSON(b); err != nil {
			return p, err
		}
	}
	intact, err := sums(p.sum, &p.r)
	if err == nil && !intact {
		p.changed = changedAt(number, &p.r)
	}
	return p, err
}

// parseJSON parses any line that is a record.
func (h *Head) parseJSON(b []byte) (p parsed, err error) {
	var l line
	if err := json.Unmarshal(b, &l); err != nil {
		return p, cutLine(b, err)
	}
	p.sum, p.count = l.Sum, unknownCount
	if l.Count != nil {
		if p.count = *l.Count; p.count < 0 {
			return p, fmt.Errorf("a count of %d events", p.count)
		}
	}
	p.r, err = h.record(&l)
	return p, err
}

// cutLine adds to the error of a line that isn't JSON whether only its end is missing.
func cutLine(b []byte, err error) error {
	var v json.RawMessage
	if errors.Is(json.NewDecoder(bytes.NewReader(b)).Decode(&v), io.ErrUnexpectedEOF) {
		return fmt.Errorf("the file was cut off in the middle of this line: %w", err)
	}
	return err
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
