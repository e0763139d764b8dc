package http

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"

	"github.com/waybill-run/waybill/events"
)

// body is the body of a response, as UTF-8 without a byte order mark.
type body struct {
	text []byte
	json bool // the Content-Type says that it is JSON
}

// decode decodes a body by its Content-Type. It converts text to UTF-8. It fails if the conversion loses anything,
// because an output must be exactly what the service returned.
func decode(h http.Header, raw []byte) (body, error) {
	if enc := strings.TrimSpace(h.Get("Content-Encoding")); enc != "" && !strings.EqualFold(enc, "identity") && len(raw) > 0 {
		return body{}, fmt.Errorf("its Content-Encoding is %q, which the agent did not accept", enc)
	}
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		params = nil // a malformed header is ignored
	}
	b := body{json: kind == "application/json" || kind == "text/json" || strings.HasSuffix(kind, "+json")}
	b.text, err = toUTF8(raw, params["charset"])
	return b, err
}

// byteOrderMarks has UTF-32 before UTF-16, because the little-endian mark of UTF-16 is a prefix of that of UTF-32.
var byteOrderMarks = []struct {
	mark string
	name string // empty: UTF-8
	of   encoding.Encoding
}{
	{"\xef\xbb\xbf", "", nil},
	{"\xff\xfe\x00\x00", "utf-32le", utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM)},
	{"\x00\x00\xfe\xff", "utf-32be", utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)},
	{"\xff\xfe", "utf-16le", unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)},
	{"\xfe\xff", "utf-16be", unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)},
}

// toUTF8 converts text to UTF-8. A byte order mark takes precedence over the charset (WHATWG Encoding Standard).
// Without both, the zero bytes at the start of JSON determine the encoding (RFC 4627, section 3). The default is UTF-8.
func toUTF8(raw []byte, charset string) ([]byte, error) {
	for _, m := range byteOrderMarks {
		if rest, ok := bytes.CutPrefix(raw, []byte(m.mark)); ok {
			return fromEncoding(rest, m.name, m.of)
		}
	}
	charset = strings.ToLower(strings.TrimSpace(charset))
	switch charset {
	case "", "utf-8", "utf8", "us-ascii", "ascii", "utf-16", "utf-32":
		if zeros := detectByZeros(raw); zeros != "" {
			charset = zeros
		}
	}
	switch charset {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
		return fromEncoding(raw, "", nil)
	case "utf-16": // without a mark: RFC 2781, section 4.3
		charset = "utf-16be"
	case "utf-32":
		charset = "utf-32be"
	}
	for _, m := range byteOrderMarks {
		if m.name == charset {
			return fromEncoding(raw, charset, m.of)
		}
	}
	enc, err := htmlindex.Get(charset)
	if err != nil || enc == encoding.Replacement {
		return nil, fmt.Errorf("its charset %q is unknown", charset)
	}
	return fromEncoding(raw, charset, enc)
}

// detectByZeros detects the encoding of text that begins with two ASCII characters, as JSON does. Empty: UTF-8.
func detectByZeros(raw []byte) string {
	if len(raw) < 4 || len(raw)%2 != 0 {
		if len(raw) != 2 {
			return ""
		}
		raw = append(raw[:2:2], raw...) // one character is enough
	}
	pattern := 0
	for i, b := range raw[:4] {
		if b == 0 {
			pattern |= 8 >> i
		}
	}
	return map[int]string{0b1010: "utf-16be", 0b0101: "utf-16le", 0b1110: "utf-32be", 0b0111: "utf-32le"}[pattern]
}

// fromEncoding converts raw to UTF-8. It fails if the conversion loses anything. If enc is nil, raw is UTF-8.
func fromEncoding(raw []byte, name string, enc encoding.Encoding) ([]byte, error) {
	if enc == nil {
		if !utf8.Valid(raw) {
			return nil, errors.New("it is not UTF-8; if it is another encoding, its Content-Type must have a charset")
		}
		return raw, nil
	}
	text, err := enc.NewDecoder().Bytes(raw)
	if err == nil && bytes.ContainsRune(text, utf8.RuneError) { // decoders insert it for invalid input
		var back []byte
		if back, err = enc.NewEncoder().Bytes(text); err == nil && !bytes.Equal(back, raw) {
			err = errors.New("it contains bytes that are no character")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("it is not valid %s: %w", name, err)
	}
	return text, nil
}

// outputError returns why a body can't be an output, or nil.
func (b *body) outputError() error {
	if b.json && len(bytes.TrimSpace(b.text)) > 0 && !events.ValidJSON(bytes.TrimSpace(b.text)) {
		return errors.New("its Content-Type says JSON, but it is not valid JSON, or nested too deeply")
	}
	return nil
}
