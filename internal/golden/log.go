package golden

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
)

// lineMaxBytes bounds one record as a line. A record is below 1 MB, and quoting makes at most six
// bytes of one.
const lineMaxBytes = 8 << 20

// line is a record of Kafka as a line of JSON.
type line struct {
	Topic     string      `json:"topic"`
	Partition int32       `json:"partition"`
	Offset    int64       `json:"offset"`
	Time      int64       `json:"time"` // milliseconds since 1970
	Key       *string     `json:"key"`
	Headers   [][2]string `json:"headers"`
	Value     *string     `json:"value"`
}

// WriteLog writes records, one a line. Bytes that aren't UTF-8 are an error: JSON would change
// them.
func WriteLog(w io.Writer, records []events.Record) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for i := range records {
		r := &records[i]
		l := line{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Time.UnixMilli(), Key: text(r.Key), Value: text(r.Value)}
		whole := utf8.Valid(r.Key) && utf8.Valid(r.Value)
		for _, h := range r.Headers {
			l.Headers = append(l.Headers, [2]string{h.Key, string(h.Value)})
			whole = whole && utf8.Valid(h.Value)
		}
		if !whole {
			return fmt.Errorf("record %s/%d/%d isn't UTF-8: a line of JSON can't hold it", r.Topic, r.Partition, r.Offset)
		}
		if err := out.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// ReadLog is the inverse of WriteLog.
func ReadLog(r io.Reader) ([]events.Record, error) {
	var records []events.Record
	err := eachLine(r, func(b []byte) error {
		var l line
		if err := json.Unmarshal(b, &l); err != nil {
			return err
		}
		rec := events.Record{Topic: l.Topic, Partition: l.Partition, Offset: l.Offset, Time: time.UnixMilli(l.Time), Key: raw(l.Key), Value: raw(l.Value)}
		for _, h := range l.Headers {
			rec.Headers = append(rec.Headers, events.Header{Key: h[0], Value: []byte(h[1])})
		}
		records = append(records, rec)
		return nil
	})
	return records, err
}

// eachLine calls fn with each line; its error names the line.
func eachLine(r io.Reader, fn func([]byte) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, lineMaxBytes)
	for n := 1; in.Scan(); n++ {
		if b := bytes.TrimSpace(in.Bytes()); len(b) > 0 {
			if err := fn(b); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
	}
	return in.Err()
}

func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

func raw(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}
