package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// forwardedHeader marks what another console asks: it is answered from here or
	// not at all, so that two that disagree don't send it to and fro.
	forwardedHeader = "Waybill-Forwarded"
	// partitionsHeader names, with commas, the partitions that another console is asked for: while
	// they move two may have the same, and what both know would be counted twice.
	partitionsHeader = "Waybill-Partitions"
	// peersFor is how long what the coordinator said is believed.
	peersFor        = time.Second
	peerAnswerBytes = 64 << 20
	// announcement begins the client id of a console's membership.
	announcement = "waybill-console@"
)

// Announce is the client id with which a console joins the audit's group, so that
// the others know where it is. Announced is its inverse.
func Announce(url string) string { return announcement + url }

// Announced is the URL in the client id of a member; empty: it is no console.
func Announced(clientID string) string {
	u, ok := strings.CutPrefix(clientID, announcement)
	if !ok {
		return ""
	}
	if parsed, err := url.Parse(u); err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		return ""
	}
	return u
}

// peers knows which console has which partition.
type peers struct {
	console *Console
	mu      sync.Mutex
	asked   time.Time
	urls    map[int32]string

	strangers map[string]bool // URLs at which another system answers, and that it was told
}

// of is where each partition is, by the coordinator's last word.
func (p *peers) of(ctx context.Context) (map[int32]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.urls != nil && time.Since(p.asked) < peersFor {
		return p.urls, nil
	}
	urls, err := p.console.cfg.Cluster.Peers(ctx)
	if err != nil {
		return nil, unavailable("which console has which partition can't be told: %v", err)
	}
	p.urls, p.asked = urls, time.Now()
	return urls, nil
}

// has reports whether a partition is read here.
func (c *Console) has(p int32) bool { return slices.Contains(c.cfg.Audit.Owned(), p) }

// forward has the console answer that has the partition, if it isn't this one.
func (c *call) forward(p int32) (done bool, err error) {
	if c.has(p) {
		return false, nil
	}
	if c.forwarded() {
		return false, unavailable("partition %d isn't here any more; ask again", p)
	}
	urls, err := c.peers.of(c.r.Context())
	if err != nil {
		return false, err
	}
	target, err := url.Parse(urls[p])
	if err != nil || urls[p] == "" || urls[p] == c.cfg.URL {
		return false, c.absent(p)
	}
	var stranger *strangerError
	proxy := &httputil.ReverseProxy{
		Transport: peerClient.Transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			c.system().Mark(r.Out.Header) // another system's console refuses it, and writes nothing
			r.Out.Header.Set(forwardedHeader, "1")
			r.Out.Header.Del("Origin") // it was compared with the host that was asked
			r.Out.Header.Del("Sec-Fetch-Site")
			_ = c.vouch(r.Out, c.sent) // what can't be said of who asks is refused there
		},
		FlushInterval: -1, // streams
		ModifyResponse: func(r *http.Response) error {
			err := c.same(urls[p], r.Header)
			if err == nil && r.StatusCode == http.StatusUnauthorized { // the caller's token is valid here
				err = errClaimRefused
			}
			for name := range c.w.Header() {
				r.Header.Del(name) // or it would be there twice
			}
			return err
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if silent := context.Cause(r.Context()); errors.Is(silent, errPeerSilent) {
				err = silent
			}
			if !errors.As(err, &stranger) { // of which nothing is passed on
				c.fail(w, r, peerUnanswered("the console at %s, which has partition %d: %v", target.Host, p, err))
			}
		},
	}
	c.pass(proxy)
	if stranger != nil {
		c.peers.tell(c.r, stranger)
		return false, unavailable("no console has partition %d at the moment: %v", p, stranger)
	}
	return true, nil
}

// errPeerSilent is of a console that has a stream, and says nothing of it.
var errPeerSilent = errors.New("it is silent")

// errClaimRefused is of a console that doesn't believe this one who asks.
var errClaimRefused = errors.New("it doesn't believe this console who asks; have both read the same file of tokens?")

// errTokenRevoked ends a stream that another console sends.
var errTokenRevoked = errors.New("the token of who reads the stream was removed")

// pass has another console answer. Whoever takes nothing of what it says is given up, and so is a console
// that says nothing: of a stream, which has no end of its own, for longer than one is silent.
func (c *call) pass(proxy http.Handler) {
	w := &passed{ResponseWriter: c.w, out: http.NewResponseController(c.w), take: c.within.write}
	defer func() { _ = w.out.SetWriteDeadline(time.Time{}) }() // as in inTime
	r := c.r
	if _, bounded := r.Context().Deadline(); !bounded {
		ctx, giveUp := context.WithCancelCause(r.Context())
		defer giveUp(nil)
		w.silent = time.AfterFunc(c.within.answer, func() { giveUp(errPeerSilent) })
		defer w.silent.Stop()
		w.take, w.silence, r = streamWriteWithin, c.within.silence, r.WithContext(ctx)
		w.revoked = c.revoked // the other console knows the caller's name only, and not its token
	}
	proxy.ServeHTTP(w, r)
}

// passed is an answer of another console as it is passed on.
type passed struct {
	http.ResponseWriter
	out     *http.ResponseController
	take    time.Duration // for the client to take a part of it
	silence time.Duration // between two parts of a stream
	silent  *time.Timer   // ends a stream of which nothing comes; nil: it is none
	revoked func() bool   // the token of who reads the stream was removed; nil: it is no stream
}

func (p *passed) Write(part []byte) (int, error) {
	if p.revoked != nil && p.revoked() {
		return 0, errTokenRevoked
	}
	if err := p.out.SetWriteDeadline(time.Now().Add(p.take)); err != nil {
		return 0, err
	}
	if p.silent != nil { // what the client takes isn't the other console's silence
		p.silent.Stop()
		defer p.silent.Reset(p.silence)
	}
	return p.ResponseWriter.Write(part)
}

// Unwrap is for http.ResponseController.
func (p *passed) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// shares say who answers for which partitions. It is settled once for a question: partitions
// move meanwhile, and two looks at who has them would make a list with a hole.
type shares struct {
	own []int32            // those that are answered for here
	at  map[string][]int32 // those of other consoles, by URL
}

// shares finds out where the partitions are. Another console that asks names those that it
// wants; one of an older build names none, and gets all that are here.
func (c *call) shares() (s shares, err error) {
	s.own = c.cfg.Audit.Owned()
	if c.forwarded() {
		if text := c.r.Header.Get(partitionsHeader); text != "" {
			wanted := strings.Split(text, ",")
			s.own = slices.DeleteFunc(slices.Clone(s.own), func(p int32) bool { return !slices.Contains(wanted, partitionText(p)) })
		}
		return s, nil
	}
	if len(s.own) == int(c.cfg.Partitions) {
		return s, nil
	}
	urls, err := c.peers.of(c.r.Context())
	if err != nil {
		return s, err
	}
	s.at = map[string][]int32{}
	for p := range c.cfg.Partitions {
		if url := urls[p]; url != "" && url != c.cfg.URL && !slices.Contains(s.own, p) {
			s.at[url] = append(s.at[url], p)
		}
	}
	return s, nil
}

func partitionText(p int32) string { return strconv.Itoa(int(p)) }

// forwarded reports whether another console asks.
func (c *call) forwarded() bool { return c.r.Header.Get(forwardedHeader) != "" }

// missing are the partitions that an answer reflects nothing of, by what it does reflect: no
// console has them at the moment, or the one that is to have them hasn't begun to read them. One that was to
// be waited for can't be left out. unled are those of which it may lack something, since no broker leads
// them. For another console nothing is missing: it knows what it asked for.
func (c *call) missing(reflected, floor map[int32]int64, unled ...int32) ([]int32, error) {
	missing := []int32{}
	if c.forwarded() {
		return missing, nil
	}
	for p := range c.cfg.Partitions {
		if _, ok := reflected[p]; ok {
			continue
		}
		if offset, waited := floor[p]; waited {
			return nil, behind("partition %d, which was to be read to offset %d, is read by no console at the moment; ask again", p, offset)
		}
		missing = append(missing, p)
	}
	missing = append(missing, unled...)
	slices.Sort(missing)
	return slices.Compact(missing), nil
}

// gather asks other consoles the same question, all at once, and gives take each
// answer. What one doesn't answer fails the whole: half an answer looks like one. Where another
// system answers there is no console: its partitions will be missing.
func gather[T any](c *call, at map[string][]int32, take func(T)) error {
	type result struct {
		from string
		body T
		err  error
	}
	results := make(chan result, len(at))
	for peer, partitions := range at {
		go func() {
			r := result{from: peer}
			r.err = c.askPeer(peer, partitions, &r.body)
			results <- r
		}()
	}
	var failed error
	for range at {
		r := <-results
		var stranger *strangerError
		switch {
		case errors.As(r.err, &stranger):
			c.peers.tell(c.r, stranger)
		case r.err != nil:
			failed = peerUnanswered("the console at %s: %v", r.from, r.err)
		default:
			take(r.body)
		}
	}
	return failed
}

// peerClient asks other consoles. A proxy of the environment isn't for them, and a redirect leads nowhere.
var peerClient = &http.Client{
	Transport: func() http.RoundTripper {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil
		return t
	}(),
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (c *call) askPeer(peer string, partitions []int32, into any) error {
	request, err := http.NewRequestWithContext(c.r.Context(), http.MethodGet, strings.TrimSuffix(peer, "/")+c.r.URL.RequestURI(), nil)
	if err != nil {
		return err
	}
	c.system().Mark(request.Header)
	request.Header.Set(forwardedHeader, "1")
	names := make([]string, len(partitions))
	for i, p := range partitions {
		names[i] = partitionText(p)
	}
	request.Header.Set(partitionsHeader, strings.Join(names, ","))
	if err := c.vouch(request, nil); err != nil {
		return err
	}
	response, err := peerClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	if err := c.same(peer, response.Header); err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, peerAnswerBytes))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		var p Problem
		if json.Unmarshal(body, &p) == nil && p.Detail != "" {
			return &p
		}
		return fmt.Errorf("status %s", response.Status)
	}
	return json.Unmarshal(body, into)
}
