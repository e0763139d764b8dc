package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/intake"
)

// Config configures a console.
type Config struct {
	ClusterID  string // of the Kafka cluster
	Namespace  events.Namespace
	Partitions int32
	Source     string // ce_source of its records

	Index   Index
	Log     Log
	Cluster Cluster
	// Batches; nil: there are none, and can't be any.
	Batches Batches
	// Schedules; nil: there are none, and can't be any.
	Schedules Schedules
	// Intakes; nil: there are none, and can't be any.
	Intakes Intakes
	// Tokens that are accepted. nil: it serves loopback only, and every local user may read.
	Tokens *Tokens
	// LoopbackOperator: without Tokens, local users may also submit and command.
	LoopbackOperator bool
	// TrustedOrigins are the origins (scheme://host[:port]) of proxies whose pages may send POST requests.
	TrustedOrigins []string
	// File is the exported file that Log reads; empty: Log is a log. Nobody can write to a file.
	File string
	// Denied receives failed authentications; may be nil. It is called concurrently.
	Denied func(Denial)
	// Clock is the clock of this machine; nil: time.Now.
	Clock func() time.Time
	// Health answers probes, which need no token; nil: no probes are served.
	Health http.Handler
	// Now returns the brokers' time, if they keep it.
	Now func() time.Time
	// Failed receives internal errors of the console; may be nil.
	Failed func(r *http.Request, err error)
}

const (
	headerMaxBytes  = 32 << 10
	headerWithin    = 5 * time.Second
	idleWithin      = 2 * time.Minute
	shutdownWithin  = 2 * time.Second
	minOffsetWithin = 5 * time.Second
	bodyMaxBytes    = events.MaxSubmissionBytes
)

// timeouts bound what a console waits for. Tests use shorter ones.
type timeouts struct {
	read    time.Duration // to receive a request with its body
	answer  time.Duration // to compute an answer, except streams
	control time.Duration // for a scheduler to answer a command
	indexed time.Duration // for the index to apply a write, and to read the workflow definitions
	slot    time.Duration // for a free slot of those that bound the concurrent requests of a kind
	write   time.Duration // for a client to receive an answer
	// changes is the least time between two messages of a stream of changes. observe is how often it observes what isn't in
	// the index: groups, topics, definitions. firstObservation bounds how long the first observation delays the headers.
	changes, observe, firstObservation time.Duration
}

var defaultTimeouts = timeouts{read: 30 * time.Second, answer: 60 * time.Second, control: 30 * time.Second, indexed: 5 * time.Second, slot: 10 * time.Second, write: 60 * time.Second,
	changes: time.Second, observe: 5 * time.Second, firstObservation: time.Second}

// probePaths are the probes that platforms call.
var probePaths = []string{"/healthz", "/readyz", "/startupz"}

// Console serves the HTTP API. It is safe for concurrent use.
type Console struct {
	cfg                Config
	timeouts           timeouts
	mux                *http.ServeMux
	document           func() *openAPIDocument // a field, since routes can't refer to what is made of them
	streamSlots        chan struct{}           // bounds the open streams
	origins            *http.CrossOriginProtection
	denials            denials
	drawings           drawings
	checkpoints        checkpoints
	stepTimes          stepTimes
	pastStates         systemStates
	streamCounts       streamCounts
	topicReadSlots     chan struct{} // bounds the requests that read a whole topic
	treeSlots          chan struct{} // bounds the requests for trees with events
	recentAlerts       *recent       // those that belong to no event
	recentLetters      *recent
	sampledAgents      shared[[]consoleapi.Agent]
	sampledScheduling  shared[map[int32]Scheduling]
	sampledIntakes     shared[[]intake.IntakeStatus]
	lags               lagHistory
	waitingLookupSlots chan struct{} // bounds the requests that look for a waiting submission
	forkSlots          chan struct{} // bounds the forks
	dryRunSlots        chan struct{} // bounds the dry runs

	closing       context.Context
	cancelStreams context.CancelFunc
	openStreams   sync.WaitGroup // streams
}

// CheckOrigin returns what is wrong with a trusted origin, or nil.
func CheckOrigin(origin string) error {
	return http.NewCrossOriginProtection().AddTrustedOrigin(origin)
}

// New creates a console. Close ends its streams. Origins that CheckOrigin rejects are not trusted.
func New(cfg Config) *Console {
	c := &Console{cfg: cfg, timeouts: defaultTimeouts, mux: http.NewServeMux(), document: apiDocument, streamSlots: make(chan struct{}, streamsMax), topicReadSlots: make(chan struct{}, topicReadsMax), treeSlots: make(chan struct{}, treesMax),
		waitingLookupSlots: make(chan struct{}, waitingLookupsMax), forkSlots: make(chan struct{}, forksMax), dryRunSlots: make(chan struct{}, dryRunsMax), pastStates: newSystemStates(), origins: http.NewCrossOriginProtection()}
	for _, origin := range cfg.TrustedOrigins {
		_ = c.origins.AddTrustedOrigin(origin) // a bad one is trusted by nobody
	}
	c.shareReads()
	c.closing, c.cancelStreams = context.WithCancel(context.Background())
	for _, route := range routes {
		c.mux.Handle(route.method+" "+route.path, c.handler(route))
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

// shareReads sets how what all callers share is read.
func (c *Console) shareReads() {
	c.recentAlerts = newRecent(func(ctx context.Context, from TopicPosition, fn func(*events.Record)) (TopicPosition, error) {
		return c.cfg.Log.Alerts(ctx, from, fn)
	}, ofNoEvent, c.cfg.Now)
	c.recentLetters = newRecent(func(ctx context.Context, from TopicPosition, fn func(*events.Record)) (TopicPosition, error) {
		return c.cfg.Log.Deadletters(ctx, from, fn)
	}, deadletterLabels, c.cfg.Now)
	c.sampledAgents.ask = func(ctx context.Context) ([]consoleapi.Agent, error) {
		agents, err := c.cfg.Cluster.Agents(ctx)
		if err == nil {
			c.lags.addAgents(c.cfg.Now(), agents)
		}
		return agents, err
	}
	c.sampledScheduling.ask = func(ctx context.Context) (map[int32]Scheduling, error) {
		partitions, err := c.cfg.Cluster.Scheduling(ctx)
		if err == nil {
			c.lags.addScheduling(c.cfg.Now(), partitions)
		}
		return partitions, err
	}
	c.sampledIntakes.ask = c.askIntakes
}

// Close ends the streams and waits for their end.
func (c *Console) Close() {
	c.cancelStreams()
	c.openStreams.Wait()
}

// server returns the HTTP server of the console.
func (c *Console) server() *http.Server {
	return &http.Server{Handler: c, ReadHeaderTimeout: headerWithin, ReadTimeout: c.timeouts.read, IdleTimeout: idleWithin, MaxHeaderBytes: headerMaxBytes}
}

// Serve serves a listener until ctx ends.
func (c *Console) Serve(ctx context.Context, listener net.Listener) error {
	server := c.server()
	stopped := context.AfterFunc(ctx, func() {
		c.cancelStreams()
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
	c.system().SetHeaders(h)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if _, pattern := c.mux.Handler(r); pattern == "" {
		c.fail(w, r, c.routeError(r))
		return
	}
	c.mux.ServeHTTP(w, r)
}

// routeError returns what is wrong with a request that matches no route.
func (c *Console) routeError(r *http.Request) error {
	if _, err := c.authenticate(r); err != nil {
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
		return badMethod("%s accepts %s, not %s", consoleapi.Printable(r.URL.Path), strings.Join(methods, " and "), consoleapi.Printable(r.Method))
	}
	if strings.HasPrefix(r.URL.Path, api+"/tasks/") {
		return notFound("there is no %s; a slash in a task's id is %%2F, and the ids . and .. are %%2E and %%2E%%2E; %s lists what there is", consoleapi.Printable(r.URL.Path), openAPIPath)
	}
	return notFound("there is no %s; %s lists what there is", consoleapi.Printable(r.URL.Path), openAPIPath)
}

// call is a request that is being answered.
type call struct {
	*Console
	w      http.ResponseWriter
	r      *http.Request
	who    caller
	status int             // of the answer
	slots  []chan struct{} // it holds a slot of each until it is answered
}

// readOnly returns why nobody can write; empty: the role of a caller decides.
func (c *Console) readOnly() string {
	switch {
	case c.cfg.File != "":
		return fmt.Sprintf("this console is read-only: it serves the file %s", consoleapi.Printable(c.cfg.File))
	case c.cfg.Tokens == nil && !c.cfg.LoopbackOperator:
		return "this console is read-only: it runs without --tokens and without --allow-loopback-operator"
	}
	return ""
}

// roleError says which role a caller lacks.
func (c *Console) roleError(who caller, role Role) error {
	return forbidden("%s", cmp.Or(c.readOnly(), lacksRole(who, role)))
}

func lacksRole(who caller, role Role) string {
	return fmt.Sprintf("%s is a %s; this needs a token of the role %s", who.name, who.role, role)
}

// write writes an answer. A client that receives it too slowly is cut off (timeouts.write).
func (c *Console) write(w http.ResponseWriter, status int, answer any) {
	kind := "application/json"
	var lines []byte
	switch a := answer.(type) {
	case eventStream:
		return // it was sent
	case jsonLines:
		kind, lines = "application/jsonl", a
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	c.withWriteDeadline(w, func() { // errors: the client may have disconnected
		if lines != nil {
			_, _ = w.Write(lines)
			return
		}
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		_ = e.Encode(answer)
	})
}

// withWriteDeadline calls write, whose writes must end within timeouts.write.
func (c *Console) withWriteDeadline(w http.ResponseWriter, write func()) {
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Now().Add(c.timeouts.write)) // fails only where the connection has ended
	write()
	_ = out.SetWriteDeadline(time.Time{}) // it is the connection's, and would be that of the next answer
}

// fail answers with a problem. Other errors are internal ones and are passed to Config.Failed.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p *consoleapi.Problem
	switch {
	case errors.As(err, &p):
	case errors.Is(r.Context().Err(), context.Canceled) && errors.Is(err, context.Canceled):
		// The client has gone, and that is nobody's fault. It is answered nevertheless: an
		// answer without a word would be taken for a good one, if anybody took it.
		writeProblem(w, r, unavailable("the request was cancelled before it was answered"))
		return
	case errors.Is(r.Context().Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		p = unavailable("no answer within %s: %v", c.timeouts.answer, err)
	default:
		p = internal("%v", err)
	}
	if p.Status >= http.StatusInternalServerError && c.cfg.Failed != nil {
		c.cfg.Failed(r, err)
	}
	writeProblem(w, r, p)
}

// checkJSON rejects content types that an HTML form can send.
func checkJSON(r *http.Request) error {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return notJSON("send it with Content-Type: application/json")
	}
	return nil
}
