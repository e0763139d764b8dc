package http

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
)

// The times between the calls for work that goes on (202). pollEvery applies without a Retry-After that can be read. progressHeaderMax
// bounds the header with the last progress, in bytes: servers refuse requests with large headers.
const (
	pollEvery         = 2 * time.Second
	pollMin           = 100 * time.Millisecond
	progressHeaderMax = 4 << 10
)

// stillWorking converts a 202: the service has accepted the request and works on it. The same request is posted again
// later. Each 202 is an answer of the service itself, so it is reported as progress.
func (a *Agent) stillWorking(r agent.Request, w response) error {
	after, ok := retryAfter(w.header, w.now)
	if !ok {
		after = pollEvery
	}
	if r.Heartbeat > 0 {
		after = min(after, r.ProgressEvery())
	}
	return agent.Pending(progressOf(w), max(after, pollMin))
}

// progressOf returns the body of a 202 as progress. A body that can't be one is left out.
func progressOf(w response) any {
	b, err := decode(w.header, w.body)
	text := bytes.TrimSpace(b.text)
	switch {
	case err != nil || w.readErr != nil || len(text) == 0 || len(text) > events.MaxProgressBytes:
		return nil
	case events.ValidJSON(text):
		return json.RawMessage(text)
	}
	return map[string]string{"body": string(text)}
}
