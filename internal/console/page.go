package console

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

const (
	// tokenMaxBytes exceeds the longest token: a place in base64 within JSON, whose escapes turn one byte into
	// six.
	tokenMaxBytes = 4096
	// placeMaxBytes bounds the text of a place. A page that reaches its bound of work ends just before a task. Its
	// place is then the task's id, shortened and decremented by one character.
	placeMaxBytes = events.MaxTaskIDBytes + utf8.UTFMax
)

// pageToken continues a list. It contains the place, a digest of the filter, and the instant that durations count
// from.
type pageToken struct {
	Filter    string `json:"f"` // digest of the text
	Now       int64  `json:"n"` // Unix ms
	Submitted int64  `json:"s"` // Unix ms, of the last task
	Task      string `json:"t"` // an id, or a text between two ids
}

var errToken = errors.New("the page token doesn't belong to this filter: pass next_page_token of the previous page with the same filter, unchanged")

func (t pageToken) String() string { return encodeToken(t) }

// encodeToken encodes a token for clients. It is neither secret nor trusted.
func encodeToken(t any) string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("console: a page token that is no JSON: %v", err)) // numbers and strings
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// decodeToken is the inverse of encodeToken.
func decodeToken(text string, into any) error {
	if len(text) > tokenMaxBytes {
		return errToken
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return errToken
	}
	return nil
}

// parsePageToken parses a token that continues the list of a filter.
func parsePageToken(text, filter string) (pageToken, error) {
	t, err := decodePageToken(text)
	if err == nil && t.Filter != filterDigest(filter) {
		err = errToken
	}
	return t, err
}

// decodePageToken parses a token of any filter.
func decodePageToken(text string) (pageToken, error) {
	var t pageToken
	if err := decodeToken(text, &t); err != nil || t.Task == "" || len(t.Task) > placeMaxBytes || t.Now <= 0 || t.Submitted < 0 {
		return t, errToken
	}
	return t, nil
}

func (t pageToken) cursor() projections.Cursor {
	return projections.Cursor{Submitted: t.Submitted, Task: t.Task}
}

func filterDigest(filter string) string {
	sum := sha256.Sum256([]byte(filter))
	return hex.EncodeToString(sum[:6])
}

// page is what a request for a list asks for.
type page struct {
	text   string // of the filter
	filter projections.Filter
	now    time.Time
	after  projections.Cursor
	size   int
}

func (p *page) next(c *projections.Cursor) string {
	if c == nil {
		return ""
	}
	return pageToken{Filter: filterDigest(p.text), Now: p.now.UnixMilli(), Submitted: c.Submitted, Task: c.Task}.String()
}
