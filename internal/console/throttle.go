package console

import (
	"github.com/waybill-run/waybill/internal/consoleapi"
	"net"
	"net/http"
	"sync"
	"time"
)

// The bounds of failed authentications.
const (
	// failuresMax bounds the failed authentications of one source within failuresWithin. Further ones are answered
	// with 429. Valid tokens are still accepted, since a proxy may be the source of many users.
	failuresMax    = 20
	failuresWithin = time.Minute
	// sourcesMax bounds the sources that are remembered. The oldest is evicted.
	sourcesMax = 1024
)

// Denial is a failed authentication.
type Denial struct {
	Source string // address of the connection, without its port
	Path   string
	Reason string // never a token
	// Log: it should be logged: it is the first of its source within a minute. Others counts those since the
	// previous logged one.
	Log    bool
	Others int
}

// denials counts failed authentications by source. It is safe for concurrent use.
type denials struct {
	mu      sync.Mutex
	sources map[string]*deniedSource
}

type deniedSource struct {
	since  time.Time // start of the window
	count  int       // in the window
	others int       // since the previous logged one
}

// add counts a failure. over: the source has exceeded failuresMax.
func (d *denials) add(source string, now time.Time) (log bool, others int, over bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sources == nil {
		d.sources = map[string]*deniedSource{}
	}
	s := d.sources[source]
	if s == nil {
		d.evictOldest()
		s = &deniedSource{}
		d.sources[source] = s
	}
	if log = now.Sub(s.since) >= failuresWithin; log {
		others = s.others
		*s = deniedSource{since: now}
	} else {
		s.others++
	}
	s.count++
	return log, others, s.count > failuresMax
}

// evictOldest forgets the source with the oldest window if sourcesMax is reached.
func (d *denials) evictOldest() {
	if len(d.sources) < sourcesMax {
		return
	}
	oldest := ""
	for name, s := range d.sources {
		if oldest == "" || s.since.Before(d.sources[oldest].since) {
			oldest = name
		}
	}
	delete(d.sources, oldest)
}

// authFailure counts a failed authentication and returns its problem.
func (c *Console) authFailure(r *http.Request, reason string) error {
	source, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		source = r.RemoteAddr
	}
	log, others, over := c.denials.add(source, c.clockNow())
	if c.cfg.Denied != nil {
		c.cfg.Denied(Denial{Source: source, Path: consoleapi.Printable(r.URL.Path), Reason: reason, Log: log, Others: others})
	}
	if over {
		return tooMany("more than %d requests with an invalid token came from %s within %s", failuresMax, source, failuresWithin)
	}
	return unauthorized("%s", reason)
}

// clockNow is this machine's time. It measures time between requests.
func (c *Console) clockNow() time.Time {
	if c.cfg.Clock != nil {
		return c.cfg.Clock()
	}
	return time.Now()
}
