package replay

import (
	"bytes"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
)

// lineParser reads a line in the usual form of Writer: the members in Writer's order, no base64, no numeric escapes. It
// fails for any other line. The standard library reads those, several times as slowly.
type lineParser struct {
	rest []byte
	out  []byte // the strings so far: never longer than the line
	ok   bool
}

// parseFast is the fast path for lines in Writer's usual form.
func (h *Head) parseFast(b []byte) (p parsed, ok bool) {
	w := lineParser{b, make([]byte, 0, len(b)), utf8.Valid(b)}
	w.expect(`{"partition":`)
	partition, err := strconv.ParseInt(string(w.digits()), 10, 32)
	w.expect(`,"offset":"`)
	offset, err2 := strconv.ParseInt(string(w.digits()), 10, 64)
	w.expect(`","timestamp":`)
	at, err3 := time.Parse(events.TimeLayout, string(w.text()))
	p = parsed{r: events.Record{Topic: h.Namespace.Events(), Partition: int32(partition), Offset: offset, Time: at}, count: unknownCount}
	w.expect(`,"key":`)
	p.r.Key = w.text()
	w.expect(`,"headers":[`)
	p.r.Headers = w.headers()
	w.expect(`,"value":`)
	p.r.Value = w.text()
	if w.accept(`,"crc32c":`) {
		p.sum = string(w.text())
	}
	var err4 error
	if w.accept(`,"count":`) {
		p.count, err4 = strconv.ParseInt(string(w.digits()), 10, 64)
	}
	w.expect(`}`)
	return p, w.ok && len(w.rest) == 0 && err == nil && err2 == nil && err3 == nil && err4 == nil && p.r.Partition < h.Partitions
}

// accept consumes a text if it comes next.
func (w *lineParser) accept(text string) bool {
	is := bytes.HasPrefix(w.rest, []byte(text))
	if is {
		w.expect(text)
	}
	return is
}

// expect consumes a text and fails if it doesn't come next.
func (w *lineParser) expect(text string) {
	if !w.ok || len(w.rest) < len(text) || string(w.rest[:len(text)]) != text {
		w.ok = false
		return
	}
	w.rest = w.rest[len(text):]
}

// digits consumes a number without sign or leading zeros.
func (w *lineParser) digits() []byte {
	n := 0
	for n < len(w.rest) && w.rest[n] >= '0' && w.rest[n] <= '9' {
		n++
	}
	if n == 0 || n > 1 && w.rest[0] == '0' {
		w.ok = false
	}
	d := w.rest[:n]
	w.rest = w.rest[n:]
	return d
}

// text consumes a string.
func (w *lineParser) text() []byte {
	w.expect(`"`)
	if !w.ok {
		return nil
	}
	s, start, plain := w.rest, len(w.out), 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			w.out = append(w.out, s[plain:i]...)
			w.rest = s[i+1:]
			return w.out[start:len(w.out):len(w.out)]
		case c == '\\' && i+1 < len(s) && unescaped[s[i+1]] != 0:
			w.out = append(append(w.out, s[plain:i]...), unescaped[s[i+1]])
			i++
			plain = i + 1
		case c == '\\' || c < ' ':
			w.ok = false
			return nil
		}
	}
	w.ok = false
	return nil
}

// unescaped are the characters of the short escapes.
var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// headers consumes the headers of a record, after the bracket.
func (w *lineParser) headers() []events.Header {
	list := make([]events.Header, 0, 5) // as in most records
	for w.ok && !bytes.HasPrefix(w.rest, []byte("]")) {
		if len(list) > 0 {
			w.expect(",")
		}
		w.expect("[")
		name := w.text()
		w.expect(",")
		value := w.text()
		w.expect("]")
		list = append(list, events.Header{Key: headerName(name), Value: value})
	}
	w.expect("]")
	return list
}

// headerName converts a name, without a copy if it is a well-known one.
func headerName(name []byte) string {
	for _, known := range [...]string{events.HeaderSpecVersion, events.HeaderType, events.HeaderSource, events.HeaderID, events.HeaderContentType} {
		if string(name) == known {
			return known
		}
	}
	return string(name)
}
