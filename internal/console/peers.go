package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// forwardedHeader marks what another console asks: it is answered from here or
	// not at all, so that two that disagree don't send it to and fro.
	forwardedHeader = "Waybill-Forwarded"
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
	if c.r.Header.Get(forwardedHeader) != "" {
		return false, unavailable("partition %d isn't here any more; ask again", p)
	}
	urls, err := c.peers.of(c.r.Context())
	if err != nil {
		return false, err
	}
	target, err := url.Parse(urls[p])
	if err != nil || urls[p] == "" || urls[p] == c.cfg.URL {
		return false, unavailable("no console has partition %d at the moment; ask again", p)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set(forwardedHeader, "1")
			r.Out.Header.Del("Origin") // it was compared with the host that was asked
		},
		FlushInterval: -1, // streams
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			c.fail(w, r, peerUnanswered("the console at %s, which has partition %d: %v", target.Host, p, err))
		},
	}
	proxy.ServeHTTP(c.w, c.r)
	return true, nil
}

// elsewhere groups the partitions that aren't here by the console that has them.
// Those of none are missing.
func (c *call) elsewhere(ctx context.Context) (at map[string][]int32, missing []int32, err error) {
	own := c.cfg.Audit.Owned()
	if len(own) == int(c.cfg.Partitions) || c.r.Header.Get(forwardedHeader) != "" {
		return nil, nil, nil
	}
	urls, err := c.peers.of(ctx)
	if err != nil {
		return nil, nil, err
	}
	at = map[string][]int32{}
	for p := range c.cfg.Partitions {
		switch {
		case slices.Contains(own, p):
		case urls[p] == "" || urls[p] == c.cfg.URL:
			missing = append(missing, p)
		default:
			at[urls[p]] = append(at[urls[p]], p)
		}
	}
	return at, missing, nil
}

// gather asks other consoles the same question, all at once, and gives take each
// answer. What one doesn't answer fails the whole: half an answer looks like one.
func gather[T any](c *call, at map[string][]int32, take func(T)) error {
	type result struct {
		from string
		body T
		err  error
	}
	results := make(chan result, len(at))
	for peer := range at {
		go func() {
			r := result{from: peer}
			r.err = c.askPeer(peer, &r.body)
			results <- r
		}()
	}
	var failed error
	for range at {
		if r := <-results; r.err != nil {
			failed = peerUnanswered("the console at %s: %v", r.from, r.err)
		} else {
			take(r.body)
		}
	}
	return failed
}

func (c *call) askPeer(peer string, into any) error {
	request, err := http.NewRequestWithContext(c.r.Context(), http.MethodGet, strings.TrimSuffix(peer, "/")+c.r.URL.RequestURI(), nil)
	if err != nil {
		return err
	}
	request.Header.Set(forwardedHeader, "1")
	if token := c.r.Header.Get("Authorization"); token != "" {
		request.Header.Set("Authorization", token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
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
