package http

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
)

// headerFileBytesMax bounds a header file.
const headerFileBytesMax = 64 << 10

// ownHeaders are set by the agent or by HTTP. A header file must not contain them.
var ownHeaders = []string{"Idempotency-Key", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection", "Host",
	"Traceparent", "Trailer", "Te", "Upgrade", "Expect", "Accept-Encoding"}

// headerFile is a file of headers. It is read again when it changes. Its errors never quote its content. It is safe for
// concurrent use.
type headerFile struct {
	path     string // empty: no file
	mu       sync.Mutex
	readInfo fs.FileInfo // of the version that was read last
	headers  http.Header // immutable
}

// read returns the current headers. Callers must not change them.
func (h *headerFile) read() (http.Header, error) {
	if h.path == "" {
		return nil, nil
	}
	info, err := os.Stat(h.path)
	if err != nil {
		return nil, fmt.Errorf("header file: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readInfo != nil && os.SameFile(info, h.readInfo) && info.ModTime().Equal(h.readInfo.ModTime()) &&
		info.Size() == h.readInfo.Size() && info.Mode() == h.readInfo.Mode() {
		return h.headers, nil
	}
	headers, seen, err := readHeaders(h.path)
	if err != nil {
		return nil, fmt.Errorf("header file %s: %w", h.path, err)
	}
	h.headers, h.readInfo = headers, seen
	return headers, nil
}

func readHeaders(name string) (http.Header, fs.FileInfo, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat() // of the open file: the name may refer to another file now
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, nil, errors.New("not a regular file")
	case info.Mode().Perm()&0o004 != 0:
		return nil, nil, fmt.Errorf("mode %04o lets everyone read the credentials: chmod 640 (in Kubernetes: defaultMode 0440)", info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, headerFileBytesMax+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) > headerFileBytesMax {
		return nil, nil, fmt.Errorf("more than %d bytes", headerFileBytesMax)
	}
	headers, err := parseHeaders(string(data))
	return headers, info, err
}

// parseHeaders parses "Name: value" lines. It skips empty lines and lines that begin with '#'.
func parseHeaders(text string) (http.Header, error) {
	headers := http.Header{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok || !isToken(name) || !isFieldValue(value):
			return nil, fmt.Errorf("line %d: not \"Name: value\"", number)
		case isOwnHeader(name):
			return nil, fmt.Errorf("line %d: %s is set by Waybill or by HTTP itself", number, http.CanonicalHeaderKey(name))
		}
		headers.Add(name, value)
	}
	return headers, nil
}

func isOwnHeader(name string) bool {
	for _, own := range ownHeaders {
		if strings.EqualFold(name, own) {
			return true
		}
	}
	return strings.HasPrefix(strings.ToLower(name), "x-waybill-")
}

// isToken reports whether s is a token by RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

func isFieldValue(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// fieldValue encodes text as a header's value. It percent-encodes '%', white space and all bytes that aren't printable
// ASCII, so different texts have different values.
func fieldValue(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
