package console

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/text"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
)

// Role is what the holder of a token may do. Each role includes the previous ones.
type Role int

// The roles.
const (
	Viewer        Role = iota + 1 // reads
	Signaller                     // sends signals to tasks, such as approvals
	Submitter                     // submits tasks
	Operator                      // sends commands to tasks, applies definitions
	UndoProcessed                 // undoes tasks that have ended as processed, too
)

// The roles that commands and signals need.
const (
	commandRole = Operator
	signalRole  = Signaller
)

var roleNames = map[string]Role{"viewer": Viewer, "signaller": Signaller, "submitter": Submitter, "operator": Operator, "undo_processed": UndoProcessed}

func (r Role) String() string {
	for name, role := range roleNames {
		if role == r {
			return name
		}
	}
	return fmt.Sprintf("role %d", int(r))
}

const (
	tokenMinBytes     = 16
	tokenFileMaxLines = 10_000
	localName         = "console" // who commands where no tokens are asked for
)

// Tokens are the bearer tokens that a console accepts. Only their digests are kept. It is safe for concurrent use.
type Tokens struct{ current atomic.Pointer[[]heldToken] }

// Replace replaces all tokens. Removed tokens are rejected from now on, and their streams end.
func (t *Tokens) Replace(with *Tokens) { t.current.Store(with.current.Load()) }

// contains reports whether a caller's token is still accepted.
func (t *Tokens) contains(who caller) bool {
	return slices.ContainsFunc(*t.current.Load(), func(h heldToken) bool {
		return h.name == who.name && h.role >= who.role && h.digest == who.digest
	})
}

type heldToken struct {
	digest [sha256.Size]byte
	name   string
	role   Role
}

// ParseTokens reads a file of tokens. A line has a role, a name for the log, and the token, of at least 16 bytes.
// A # at the start of a word starts a comment, so a token may contain one. Errors name the line, never a token.
func ParseTokens(in io.Reader) (*Tokens, error) {
	var all []heldToken
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if comment := slices.IndexFunc(fields, func(f string) bool { return f[0] == '#' }); comment >= 0 {
			fields = fields[:comment]
		}
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d has %s; a line is a role (viewer, signaller, submitter, operator or undo_processed), a name, and a token", n, text.Count(len(fields), "word"))
		}
		role, ok := roleNames[fields[0]]
		if !ok {
			return nil, fmt.Errorf("line %d: there is no role %q; it is viewer, signaller, submitter, operator or undo_processed", n, fields[0])
		}
		if len(fields[2]) < tokenMinBytes {
			return nil, fmt.Errorf("line %d: the token has less than %d bytes", n, tokenMinBytes)
		}
		held := heldToken{sha256.Sum256([]byte(fields[2])), fields[1], role}
		for _, other := range all {
			if other.digest == held.digest {
				return nil, fmt.Errorf("line %d: %s has the same token as %s", n, held.name, other.name)
			}
		}
		if all = append(all, held); len(all) > tokenFileMaxLines {
			return nil, fmt.Errorf("more than %d tokens", tokenFileMaxLines)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the file has no token; a line is a role (viewer, signaller, submitter, operator or undo_processed), a name, and a token")
	}
	t := &Tokens{}
	t.current.Store(&all)
	return t, nil
}

// caller is who sent a request.
type caller struct {
	name   string
	role   Role
	digest [sha256.Size]byte // of its token
}

// find compares a token with every known one, so that its duration reveals nothing.
func (t *Tokens) find(token string) (caller, bool) {
	digest := sha256.Sum256([]byte(token))
	var found *heldToken
	held := *t.current.Load()
	for i := range held {
		if subtle.ConstantTimeCompare(held[i].digest[:], digest[:]) == 1 {
			found = &held[i]
		}
	}
	if found == nil {
		return caller{}, false
	}
	return caller{name: found.name, role: found.role, digest: found.digest}, true
}

// authenticate returns the caller of a request. It rejects requests that weren't meant for this console.
func (c *Console) authenticate(r *http.Request) (caller, error) {
	if err := c.checkHost(r); err != nil {
		return caller{}, err
	}
	if err := c.checkSystem(r); err != nil {
		return caller{}, err
	}
	if c.cfg.Tokens == nil {
		return c.localCaller(r)
	}
	sent := r.Header.Values("Authorization")
	if len(sent) == 0 { // a page that has no token yet; it guesses none, so it doesn't count as a failure
		return caller{}, unauthorized("send a header Authorization: Bearer TOKEN")
	}
	if len(sent) != 1 {
		return caller{}, c.authFailure(r, fmt.Sprintf("send one header Authorization: Bearer TOKEN; %d were sent", len(sent)))
	}
	scheme, token, _ := strings.Cut(sent[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return caller{}, c.authFailure(r, "send a header Authorization: Bearer TOKEN")
	}
	who, ok := c.cfg.Tokens.find(strings.TrimSpace(token))
	if !ok {
		return caller{}, c.authFailure(r, "the token isn't one of this console's")
	}
	return who, nil
}

// proxyHeaders are headers that proxies add to forwarded requests.
var proxyHeaders = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via"}

// localCaller is the caller at a console without tokens: a user of this machine. Requests through a proxy only
// look local and are rejected.
func (c *Console) localCaller(r *http.Request) (caller, error) {
	for _, name := range proxyHeaders {
		if r.Header.Get(name) != "" {
			return caller{}, wrongHost("the request came through a proxy (%s): a console behind a proxy needs --tokens", name)
		}
	}
	if c.cfg.LoopbackOperator {
		return caller{name: localName, role: UndoProcessed}, nil
	}
	return caller{name: localName, role: Viewer}, nil
}

// checkHost prevents web pages of other origins from using a browser that can reach a console on loopback, be it
// by DNS rebinding or by cross-origin requests.
func (c *Console) checkHost(r *http.Request) error {
	if c.cfg.Tokens == nil && !loopbackHost(r.Host) {
		return wrongHost("this console serves loopback only, not %q; call it as 127.0.0.1, or start it with --tokens", consoleapi.Printable(r.Host))
	}
	if err := c.origins.Check(r); err != nil {
		return forbidden("requests from pages of other origins (Origin %q) are rejected; behind a proxy, start the console with its origin as --trusted-origin", consoleapi.Printable(r.Header.Get("Origin")))
	}
	if c.cfg.Tokens != nil { // a page elsewhere has no token to read anything with
		return nil
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host != r.Host {
			return forbidden("requests from pages of other origins (Origin %q) are rejected", consoleapi.Printable(origin))
		}
	}
	return nil
}

func loopbackHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip := net.ParseIP(name)
	return ip != nil && ip.IsLoopback()
}

// whoAmI returns who sends the request.
func (c *call) whoAmI(*noParameters) (*consoleapi.WhoAmI, error) {
	v := &consoleapi.WhoAmI{Name: c.who.name, By: "token", Role: c.who.role.String(), ReadOnly: c.readOnly(), File: c.cfg.File}
	if c.cfg.Tokens == nil {
		v.By = "local"
	}
	for role := Viewer; role <= c.who.role; role++ {
		v.Roles = append(v.Roles, role.String())
	}
	return v, nil
}
