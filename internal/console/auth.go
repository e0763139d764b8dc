package console

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode"
)

// Role says what the holder of a token may do. Each may what those before it may.
type Role int

// The roles.
const (
	Viewer    Role = iota + 1 // asks
	Submitter                 // submits orders
	Operator                  // commands tasks
)

var roleNames = map[string]Role{"viewer": Viewer, "submitter": Submitter, "operator": Operator}

func (r Role) String() string {
	for name, role := range roleNames {
		if role == r {
			return name
		}
	}
	return fmt.Sprintf("role %d", int(r))
}

const (
	tokenLeastBytes   = 16
	tokenFileMaxLines = 10_000
	nobody            = "console" // who commands where no tokens are asked for
)

// Tokens are the bearer tokens that a console accepts. Only their digests are
// kept. It is safe for concurrent use.
type Tokens struct{ held []heldToken }

type heldToken struct {
	digest [sha256.Size]byte
	name   string
	role   Role
}

// ParseTokens reads a file of tokens: lines of a role, a name for the log, and
// the token, of at least 16 bytes; # begins a comment. An error names the line,
// never a token.
func ParseTokens(in io.Reader) (*Tokens, error) {
	t := &Tokens{}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d has %d words; a line is a role (viewer, submitter or operator), a name, and a token", n, len(fields))
		}
		role, ok := roleNames[fields[0]]
		if !ok {
			return nil, fmt.Errorf("line %d: there is no role %q; it is viewer, submitter or operator", n, fields[0])
		}
		if len(fields[2]) < tokenLeastBytes {
			return nil, fmt.Errorf("line %d: the token has less than %d bytes", n, tokenLeastBytes)
		}
		held := heldToken{sha256.Sum256([]byte(fields[2])), fields[1], role}
		for _, other := range t.held {
			if other.digest == held.digest {
				return nil, fmt.Errorf("line %d: the token of %s is that of %s too", n, held.name, other.name)
			}
		}
		if t.held = append(t.held, held); len(t.held) > tokenFileMaxLines {
			return nil, fmt.Errorf("more than %d tokens", tokenFileMaxLines)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(t.held) == 0 {
		return nil, fmt.Errorf("it holds no token; a line is a role (viewer, submitter or operator), a name, and a token")
	}
	return t, nil
}

// caller is who asks.
type caller struct {
	name string
	role Role
}

// find compares with every token, so that the time it takes tells nothing.
func (t *Tokens) find(token string) (caller, bool) {
	digest := sha256.Sum256([]byte(token))
	var found *heldToken
	for i := range t.held {
		if subtle.ConstantTimeCompare(t.held[i].digest[:], digest[:]) == 1 {
			found = &t.held[i]
		}
	}
	if found == nil {
		return caller{}, false
	}
	return caller{found.name, found.role}, true
}

// guard finds out who asks, and refuses what wasn't meant for this console.
func (c *Console) guard(r *http.Request) (caller, error) {
	if err := c.guardHost(r); err != nil {
		return caller{}, err
	}
	if err := c.guardSystem(r); err != nil {
		return caller{}, err
	}
	if c.cfg.Tokens == nil {
		return caller{nobody, Operator}, nil
	}
	sent := r.Header.Values("Authorization")
	if len(sent) != 1 {
		return caller{}, unauthorized("send one header Authorization: Bearer TOKEN; %d were sent", len(sent))
	}
	scheme, token, _ := strings.Cut(sent[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return caller{}, unauthorized("send a header Authorization: Bearer TOKEN")
	}
	who, ok := c.cfg.Tokens.find(strings.TrimSpace(token))
	if !ok {
		return caller{}, unauthorized("the token isn't one of this console's")
	}
	return who, nil
}

// guardHost keeps pages of the web from using a browser that can reach a console
// on loopback: by a name of theirs that leads there, or by a request of their own.
func (c *Console) guardHost(r *http.Request) error {
	if c.cfg.Tokens == nil && !loopbackHost(r.Host) {
		return misdirected("it answers for loopback only, not for %q; call it by 127.0.0.1, or give it tokens", printable(r.Host))
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host != r.Host {
			return forbidden("requests of pages from elsewhere (Origin %q) aren't answered", printable(origin))
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

// printable is what others wrote, without what a terminal or a log would act on.
func printable(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}
