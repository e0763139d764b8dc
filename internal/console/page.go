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
	pageDefault = 50
	pageMax     = 1000
	// tokenMaxBytes is more than the longest token takes: a place, in base64
	// within JSON, whose escapes make six bytes of one.
	tokenMaxBytes = 4096
	// placeMaxBytes is how long the text of a place can be. A page that ends by its bound of work
	// ends just before a task: behind its id, cut short and made less by a character.
	placeMaxBytes = events.MaxTaskIDBytes + utf8.UTFMax
)

// pageToken continues a list. It holds the place, and of the filter what has to
// stay the same: its text, and the instant that its durations count from.
type pageToken struct {
	Filter    string `json:"f"` // digest of the text
	Now       int64  `json:"n"` // Unix ms
	Submitted int64  `json:"s"` // Unix ms, of the last task
	Task      string `json:"t"` // its id, or a text between two ids: no id needs to be like it
}

var errToken = errors.New("this is no page token of this filter: pass the next_page_token of the page before, with its filter, as they are")

func (t pageToken) String() string { return tokenText(t) }

// tokenText is a token as it is given to who asks. It isn't secret, and isn't believed.
func tokenText(t any) string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("console: a page token that is no JSON: %v", err)) // numbers and strings
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// readToken is the inverse of tokenText.
func readToken(text string, into any) error {
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

// parseToken reads a token that continues the list of a filter.
func parseToken(text, filter string) (pageToken, error) {
	t, err := parseTokenOf(text)
	if err == nil && t.Filter != filterDigest(filter) {
		err = errToken
	}
	return t, err
}

// parseTokenOf reads a token, of whatever filter.
func parseTokenOf(text string) (pageToken, error) {
	var t pageToken
	if err := readToken(text, &t); err != nil || t.Task == "" || len(t.Task) > placeMaxBytes || t.Now <= 0 || t.Submitted < 0 {
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
