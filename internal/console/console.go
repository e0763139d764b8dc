package console

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Config is what a console is made of.
type Config struct {
	ClusterID  string // Kafka's
	Namespace  events.Namespace
	Partitions int32
	Source     string // ce_source of what it writes
	History    bool   // the namespace was imported: what would write to it is refused

	Index   Index
	Log     Log
	Cluster Cluster
	// Tokens that are accepted; nil: it answers on loopback only, and whoever is there may look.
	Tokens *Tokens
	// LoopbackOperator, without Tokens: whoever is there may submit and command too.
	LoopbackOperator bool
	// TrustedOrigins are scheme://host[:port] of proxies before it, whose pages may post.
	TrustedOrigins []string
	// Denied is told of failed authentications; may be nil. It is called concurrently.
	Denied func(Denial)
	// Clock is this machine's time; nil: time.Now.
	Clock func() time.Time
	// Health answers probes, without a token; nil: there are none.
	Health http.Handler
	// Now is the time, the brokers' where they keep it.
	Now func() time.Time
	// Failed is told of errors that are the console's own; may be nil.
	Failed func(r *http.Request, err error)
}

const (
	headerMaxBytes  = 32 << 10
	headerWithin    = 5 * time.Second
	idleWithin      = 2 * time.Minute
	shutdownWithin  = 2 * time.Second
	minOffsetWithin = 5 * time.Second
	bodyMaxBytes    = events.MaxSubmissionBytes
	controlMaxBytes = events.MaxSubmissionBytes
)

// patience is how long a console waits. Tests have less of it.
type patience struct {
	read    time.Duration // for a request, with its body
	answer  time.Duration // for an answer to be made; but for streams
	control time.Duration // for a scheduler to answer a command
	turn    time.Duration // for room to read a topic through
	write   time.Duration // for a client to take an answer
}

var usualPatience = patience{read: 30 * time.Second, answer: 60 * time.Second, control: 30 * time.Second, turn: 10 * time.Second, write: 60 * time.Second}

// probePaths are what a platform asks of any role.
var probePaths = []string{"/healthz", "/readyz", "/startupz"}

// Console answers for the orders. It is safe for concurrent use.
type Console struct {
	cfg     Config
	within  patience
	mux     *http.ServeMux
	streams chan struct{} // bounds how many are open
	origins *http.CrossOriginProtection
	denials denials
	viewers viewers
	reads   chan struct{} // bounds how many read a topic through
	looks   chan struct{} // bounds how many look for a submission that waits

	ending context.Context
	end    context.CancelFunc
	open   sync.WaitGroup // streams
}

// CheckOrigin says what is wrong with an origin that is to be trusted.
func CheckOrigin(origin string) error {
	return http.NewCrossOriginProtection().AddTrustedOrigin(origin)
}

// New makes a console. Close ends its streams. Origins that CheckOrigin refuses aren't trusted.
func New(cfg Config) *Console {
	c := &Console{cfg: cfg, within: usualPatience, mux: http.NewServeMux(), streams: make(chan struct{}, streamsMax), reads: make(chan struct{}, topicReadsMax),
		looks: make(chan struct{}, waitingLooksMax), origins: http.NewCrossOriginProtection()}
	for _, origin := range cfg.TrustedOrigins {
		_ = c.origins.AddTrustedOrigin(origin) // a bad one is trusted by nobody
	}
	c.ending, c.end = context.WithCancel(context.Background())
	for _, route := range routes {
		c.mux.Handle(route.method+" "+route.path, c.serve(route))
	}
	if cfg.Health != nil {
		for _, path := range probePaths { // platforms have no token
			c.mux.Handle("GET "+path, cfg.Health)
		}
	}
	c.mux.Handle("GET /{$}", c.page())
	c.mux.Handle("GET "+pageFiles+"{file}", c.page())
	return c
}

// Close ends the streams, and returns when they have ended.
func (c *Console) Close() {
	c.end()
	c.open.Wait()
}

// server is what a console is served by.
func (c *Console) server() *http.Server {
	return &http.Server{Handler: c, ReadHeaderTimeout: headerWithin, ReadTimeout: c.within.read, IdleTimeout: idleWithin, MaxHeaderBytes: headerMaxBytes}
}

// Serve answers on a listener until ctx ends.
func (c *Console) Serve(ctx context.Context, listener net.Listener) error {
	server := c.server()
	stopped := context.AfterFunc(ctx, func() {
		c.end()
		within, cancel := context.WithTimeout(context.Background(), shutdownWithin)
		defer cancel()
		if server.Shutdown(within) != nil {
			_ = server.Close() // whoever is still connected has had his time
		}
	})
	defer stopped()
	err := server.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		c.Close()
		return nil
	}
	return err
}

// ServeHTTP answers a request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	c.system().Mark(h)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if _, pattern := c.mux.Handler(r); pattern == "" {
		c.fail(w, r, c.unknown(r))
		return
	}
	c.mux.ServeHTTP(w, r)
}

// unknown says what is wrong with a request that no route is for.
func (c *Console) unknown(r *http.Request) error {
	if _, err := c.guard(r); err != nil {
		return err
	}
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := c.mux.Handler(other); pattern != "" {
			methods = append(methods, method)
		}
	}
	if len(methods) > 0 {
		return badMethod("%s takes %s, not %s", printable(r.URL.Path), strings.Join(methods, " and "), printable(r.Method))
	}
	if strings.HasPrefix(r.URL.Path, api+"/tasks/") {
		return notFound("there is no %s; a slash in a task's id is %%2F, and the ids . and .. are %%2E and %%2E%%2E; %s lists what there is", printable(r.URL.Path), openAPIPath)
	}
	return notFound("there is no %s; %s lists what there is", printable(r.URL.Path), openAPIPath)
}

// call is a request that is being answered.
type call struct {
	*Console
	w       http.ResponseWriter
	r       *http.Request
	who     caller
	reading bool // it has room among those that read a topic through, until it is answered
}

// serve is the handler of a route.
func (c *Console) serve(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := c.guard(r)
		if err == nil && who.role < route.role {
			err = c.lacks(who, route.role)
		}
		if err == nil && route.stream && r.Method == http.MethodHead {
			err = badMethod("%s is a stream, which has no end: GET it", printable(r.URL.Path))
		}
		if err == nil && r.Method == http.MethodPost {
			err = c.writable()
		}
		if err == nil && r.Method == http.MethodPost {
			err = checkJSON(r)
		}
		if err != nil {
			c.fail(w, r, err)
			return
		}
		if !route.stream {
			ctx, cancel := context.WithTimeout(r.Context(), c.within.answer)
			defer cancel()
			r = r.WithContext(ctx)
		}
		asked := &call{Console: c, w: w, r: r, who: who}
		defer asked.over()
		answer, err := route.answer(asked)
		switch {
		case err != nil:
			c.fail(w, r, err)
		case answer != nil:
			c.write(w, answer)
		}
	})
}

// lacks says what a caller would need.
func (c *Console) lacks(who caller, role Role) error {
	if c.cfg.Tokens == nil {
		return forbidden("this console only shows: it runs without --tokens, and without --allow-loopback-operator")
	}
	return forbidden("%s is a %s; this needs a token of the role %s", who.name, who.role, role)
}

// answered is an answer with a status of its own.
type answered struct {
	status   int
	location string
	body     any
}

// write writes an answer, which it doesn't hold for longer than a client may take to take it.
func (c *Console) write(w http.ResponseWriter, answer any) {
	status := http.StatusOK
	if a, ok := answer.(*answered); ok {
		status, answer = a.status, a.body
		if a.location != "" {
			w.Header().Set("Location", a.location)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	c.inTime(w, func() {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		_ = e.Encode(answer) // whoever is gone needs no answer
	})
}

// inTime writes an answer within the time that a client may take to take it.
func (c *Console) inTime(w http.ResponseWriter, write func()) {
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Now().Add(c.within.write)) // fails only where the connection has ended
	write()
	_ = out.SetWriteDeadline(time.Time{}) // it is the connection's, and would be that of the next answer
}

// fail answers with a problem. What isn't one is the console's own fault, and is
// told to whoever runs it.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p *Problem
	switch {
	case errors.As(err, &p):
	case errors.Is(r.Context().Err(), context.Canceled) && errors.Is(err, context.Canceled):
		// The client has gone, and that is nobody's fault. It is answered nevertheless: an
		// answer without a word would be taken for a good one, if anybody took it.
		unavailable("the request was cut off before it was answered").write(w, r)
		return
	case errors.Is(r.Context().Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		p = unavailable("no answer within %s: %v", c.within.answer, err)
	default:
		p = internal("%v", err)
	}
	if p.Status >= http.StatusInternalServerError && c.cfg.Failed != nil {
		c.cfg.Failed(r, err)
	}
	p.write(w, r)
}

// writable refuses what nobody would take.
func (c *Console) writable() error {
	if c.cfg.History {
		return forReading("the namespace %s holds what `waybill import` brought: no scheduler runs there, to take an order or a command", c.cfg.Namespace)
	}
	return nil
}

// checkJSON refuses what a form of a web page could send.
func checkJSON(r *http.Request) error {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return notJSON("send it with Content-Type: application/json")
	}
	return nil
}
