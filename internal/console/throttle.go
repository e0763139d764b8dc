package console

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// The bounds of failed authentications.
const (
	// failuresMost are as many as one source may have within failuresWithin; each further one is answered with 429. A valid token
	// is taken all the same, for many people may come through one proxy.
	failuresMost   = 20
	failuresWithin = time.Minute
	// sourcesMost bounds how many sources are remembered. Past it the oldest is forgotten.
	sourcesMost = 1024
)

// Denial is a failed authentication.
type Denial struct {
	Source string // the address that the connection comes from, without its port
	Path   string
	Reason string // never a token
	// Log: it is to be logged: the first of its source within a minute. Others is how many came since the last that was.
	Log    bool
	Others int
}

// denials counts failed authentications by source. It is safe for concurrent use.
type denials struct {
	mu      sync.Mutex
	sources map[string]*deniedSource
}

type deniedSource struct {
	since  time.Time // the window's begin
	count  int       // in the window
	others int       // since the last that was logged
}

// add counts a failure. over: the source has had more than it may have.
func (d *denials) add(source string, now time.Time) (log bool, others int, over bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sources == nil {
		d.sources = map[string]*deniedSource{}
	}
	s := d.sources[source]
	if s == nil {
		d.makeRoom()
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
	return log, others, s.count > failuresMost
}

// makeRoom forgets the source whose window began first, if there are as many as may be.
func (d *denials) makeRoom() {
	if len(d.sources) < sourcesMost {
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

// denied counts a failed authentication, and is its problem.
func (c *Console) denied(r *http.Request, reason string) error {
	source, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		source = r.RemoteAddr
	}
	log, others, over := c.denials.add(source, c.now())
	if c.cfg.Denied != nil {
		c.cfg.Denied(Denial{Source: source, Path: printable(r.URL.Path), Reason: reason, Log: log, Others: others})
	}
	if over {
		return tooMany("more than %d requests with an invalid token came from %s within %s", failuresMost, source, failuresWithin)
	}
	return unauthorized("%s", reason)
}

// now is this machine's time: what it bounds is between two requests.
func (c *Console) now() time.Time {
	if c.cfg.Clock != nil {
		return c.cfg.Clock()
	}
	return time.Now()
}
