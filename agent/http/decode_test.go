package http

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/internal/suite"
)

// An output is exactly what the service returned, in any encoding. A body that can't be decoded without loss is a
// failure with unknown effect, because the work is done.
func TestBodiesInOtherEncodings(t *testing.T) {
	var kind, encoding string
	var body []byte
	var status int
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil // otherwise net/http guesses one
		if kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		if encoding != "" {
			w.Header().Set("Content-Encoding", encoding)
		}
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
	a := newAgent(t, Config{URL: s.URL})
	const want = `{"name":"é€😀"}`
	for _, c := range []struct{ kind, body, output, why string }{
		{"application/json", "\xef\xbb\xbf" + want, want, ""},
		{"", "\xef\xbb\xbf" + want, want, ""},
		{"application/json; charset=utf-8", want, want, ""},
		{"application/json; charset=UTF-16", "\xff\xfe" + utf16le(want), want, ""},
		{"application/json; charset=utf-16", "\xfe\xff" + utf16be(want), want, ""},
		{"application/json; charset=utf-16be", utf16be(want), want, ""},
		{"application/json; charset=utf-16le", utf16le(want), want, ""},
		{"application/json; charset=utf-8", "\xff\xfe" + utf16le(want), want, ""}, // the byte order mark takes precedence
		{"application/json", utf16le(want), want, ""},
		{"application/json", utf16be(want), want, ""},
		{"application/json", utf16le("1"), "1", ""},
		{"", utf16le(want), want, ""},
		{"application/json; charset=utf-32le", utf32le(want), want, ""},
		{"application/json", "\xff\xfe\x00\x00" + utf32le(want), want, ""},
		{"application/json; charset=ISO-8859-1", "{\"name\":\"caf\xe9\"}", `{"name":"café"}`, ""},
		{"application/problem+json; charset=\"windows-1252\"", "{\"price\":\"5\x80\"}", `{"price":"5€"}`, ""},
		{"text/plain; charset=latin1", "caf\xe9", `{"body":"café"}`, ""},
		{"text/plain; charset=Shift_JIS", "\x93\xfa\x96\x7b", `{"body":"日本"}`, ""},
		{"text/plain", "\uFFFD is a character, too", "{\"body\":\"\uFFFD is a character, too\"}", ""},
		{"application/json; charset=utf-16le", utf16le("\"\uFFFD\""), "\"\uFFFD\"", ""},
		{"application/json; charset=", want, want, ""},
		{"no media type;;", want, want, ""},

		{"application/json", "{\"name\":\"caf\xe9\"}", "", "it is not UTF-8"},
		{"text/plain", "caf\xe9", "", "it is not UTF-8"},
		{"application/json; charset=utf-8", "\"\xff\"", "", "it is not UTF-8"},
		{"application/json; charset=klingon", "1", "", `charset "klingon" is unknown`},
		{"application/json; charset=utf-16le", "\"\x00\x3d\xd8\"\x00", "", "not valid utf-16le"}, // half of a surrogate pair
		{"application/json; charset=utf-16le", utf16le(want) + "x", "", "not valid utf-16le"},
		{"text/plain; charset=windows-1253", "\xaa", "", "not valid windows-1253"},
		{"application/json", `{"name":`, "", "says JSON, but it is not valid JSON"},
		{"application/json", "<html>", "", "says JSON, but it is not valid JSON"},
		{"image/png", "\x89PNG\r\n\x1a\n", "", "it is not UTF-8"},
	} {
		kind, body, status = c.kind, []byte(c.body), 200
		out, f := handle(t, a, testRequest())
		switch {
		case c.why == "":
			if f != nil || out != c.output {
				t.Errorf("%q %.30q: %s, %v; want %s", c.kind, c.body, out, f, c.output)
			}
		case class(f) != "failed neutral" || f.Code != CodeBadResponse || !strings.Contains(f.Message, c.why):
			t.Errorf("%q %.30q: %s %s, %v; want a failure that says %q", c.kind, c.body, out, class(f), f, c.why)
		}
		if status = 422; c.why == "" {
			continue
		}
		if _, f = handle(t, a, testRequest()); class(f) != "rejected" || f.Code != "http_422" || !strings.Contains(f.Message, c.why) && !strings.Contains(c.why, "JSON") {
			t.Errorf("422 %q %.30q: %s %v; want a rejection that says %q", c.kind, c.body, class(f), f, c.why)
		}
	}
	encoding, kind, body, status = "br", "application/json", []byte("1"), 200
	if _, f := handle(t, a, testRequest()); class(f) != "failed neutral" || !strings.Contains(f.Message, `"br", which the agent did not accept`) {
		t.Errorf("an encoding that nobody asked for: %s %v", class(f), f)
	}
}

func units(s string, size int, put func(b []byte, r rune) []byte) string {
	var b []byte
	for _, r := range s {
		if size == 2 && r > 0xffff {
			r -= 0x10000
			b = put(put(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
			continue
		}
		b = put(b, r)
	}
	return string(b)
}

func utf16le(s string) string {
	return units(s, 2, func(b []byte, r rune) []byte { return append(b, byte(r), byte(r>>8)) })
}

func utf16be(s string) string {
	return units(s, 2, func(b []byte, r rune) []byte { return append(b, byte(r>>8), byte(r)) })
}

func utf32le(s string) string {
	return units(s, 4, func(b []byte, r rune) []byte { return append(b, byte(r), byte(r>>8), byte(r>>16), byte(r>>24)) })
}

// FuzzDecode: a decoded body is UTF-8, and UTF-8 is decoded to itself.
func FuzzDecode(f *testing.F) {
	f.Add("application/json; charset=utf-16", []byte("\xff\xfe1\x00"))
	f.Add("text/plain; charset=latin1", []byte("caf\xe9"))
	f.Add("", []byte{0, '1'})
	f.Fuzz(func(t *testing.T, kind string, raw []byte) {
		b, err := decode(http.Header{"Content-Type": {kind}}, raw)
		if err == nil && !bytes.Equal(bytes.ToValidUTF8(b.text, nil), b.text) {
			t.Fatalf("%q as %q is %q", raw, kind, b.text)
		}
	})
}

// speaks serves a connection: after the request it writes what speak writes. It keeps the connection open until the
// test ends.
func speaks(t *testing.T, speak func(w io.Writer) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended); l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					io.Copy(io.Discard, req.Body)
					if speak(c) == nil {
						<-ended
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func always(text string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
}

// endless writes a head, and then a text repeatedly until the agent closes the connection.
func endless(head, text string, every time.Duration) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, head)
		for err == nil {
			time.Sleep(every)
			_, err = io.WriteString(w, text)
		}
		return err
	}
}

func gzipped(n int) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(make([]byte, n)) // a buffer takes all
	_ = z.Close()
	return b.String()
}

// A call ends by its complete-by, with the right result, whatever the service does with its connection.
func TestAnswersThatDoNotEnd(t *testing.T) {
	bomb := gzipped(64 << 20)
	for name, c := range map[string]struct {
		speak func(io.Writer) error
		class string
		code  string
	}{
		"101 and silence":           {always("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), "failed", "http_101"},
		"101 without an upgrade":    {always("HTTP/1.1 101 \r\n\r\n"), "failed", "http_101"},
		"101 and an endless stream": {endless("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "x", time.Millisecond), "failed", "http_101"},
		"100 and silence":           {always("HTTP/1.1 100 Continue\r\n\r\n"), "again", CodeNoAnswer},
		"103 without end":           {endless("", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 0), "again", CodeNoAnswer},
		"103 without end, slowly":   {endless("", "HTTP/1.1 103 Early Hints\r\n\r\n", 50*time.Millisecond), "again", CodeNoAnswer},
		"headers without end":       {endless("HTTP/1.1 200 OK\r\n", "X-More: and more\r\n", 0), "again", CodeNoAnswer},
		"a status without end":      {endless("HTTP/1.1 200 O", "K", 0), "again", CodeNoAnswer},
		"a body that drips":         {endless("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", "1", 20*time.Millisecond), "again", CodeNoAnswer},
		"chunks that drip":          {endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n1\r\n", 20*time.Millisecond), "again", CodeNoAnswer},
		"a body until the close":    {always("HTTP/1.1 200 OK\r\n\r\n{}"), "again", CodeNoAnswer},
		"chunks without an end":     {always("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"), "again", CodeNoAnswer},
		"trailers without end":      {endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", "X-More: and more\r\n", 0), "again", CodeNoAnswer},
		"trailers that drip":        {endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", "X: y\r\n", 50*time.Millisecond), "again", CodeNoAnswer},
		"a body shorter than its length": {func(w io.Writer) error {
			io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}")
			return io.EOF
		}, "again", CodeNoAnswer},
		"a body longer than its length": {always("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{\"a\":1}"), "failed neutral", CodeBadResponse},
		"two lengths":                   {always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"), "again", CodeNoAnswer},
		"a length below 0":              {always("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}"), "again", CodeNoAnswer},
		"a length and chunks":           {always("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), "completed", ""},
		"no HTTP":                       {always("220 mail.example ESMTP\r\n"), "again", CodeNoAnswer},
		"a gzip bomb": {always(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(bomb), bomb)),
			"failed neutral", CodeResponseTooLarge},
		"gzip that is none":      {always("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"), "again", CodeNoAnswer},
		"a redirect to itself":   {always("HTTP/1.1 307 Again\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), "failed neutral", "http_307"},
		"a redirect without end": {endless("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "x", 20*time.Millisecond), "failed neutral", "http_302"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, Config{URL: speaks(t, c.speak)})
			r := testRequest()
			r.CompleteBy = time.Now().Add(time.Second)
			ctx, cancel := context.WithDeadline(t.Context(), r.CompleteBy)
			defer cancel()
			type ending struct {
				err error
			}
			ended := make(chan ending, 1)
			go func() {
				_, err := a.Handle(ctx, r)
				ended <- ending{err}
			}()
			select {
			case e := <-ended:
				f, _ := errors.AsType[*agent.Failure](e.err)
				if e.err != nil && f == nil {
					t.Fatalf("%T %v", e.err, e.err)
				}
				got := class(f)
				if f == nil {
					f = &agent.Failure{}
				}
				if got != c.class || f.Code != c.code {
					t.Errorf("%s %s: %v; want %s %s", got, f.Code, f, c.class, c.code)
				}
			case <-time.After(suite.Patience):
				t.Error("a minute after its complete-by the call has its place still")
			}
		})
	}
}
