package console

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A console that asks another on a caller's behalf sends no bearer token: whoever is in the audit's group can announce any
// address, and would collect tokens. It says instead who asks, signed with a key that only holders of the same file of tokens
// can make, for this one request and a minute. What a false console learns of that is good for the same request only.

const (
	callerHeader = "Waybill-Caller"
	callerWithin = time.Minute
)

// callerClaim says who asks.
type callerClaim struct {
	Name  string `json:"name"`
	Role  Role   `json:"role"`
	Until int64  `json:"until"` // Unix time, in seconds, of the brokers: consoles' own clocks may differ
}

// peerKey is made of all tokens: who holds some can't make it.
func (t *Tokens) peerKey() []byte {
	held := slices.Clone(*t.held.Load())
	slices.SortFunc(held, func(a, b heldToken) int { return bytes.Compare(a.digest[:], b.digest[:]) })
	h := sha256.New()
	_, _ = io.WriteString(h, "waybill console peers\n")
	for i := range held {
		_, _ = h.Write(held[i].digest[:])
	}
	return h.Sum(nil)
}

// askedURI is what a request asks for, without the path of a proxy that the console is behind: the proxy removes it.
func askedURI(r *http.Request) string {
	uri := r.URL.RequestURI()
	path, _, _ := strings.Cut(uri, "?")
	return uri[max(0, strings.LastIndex(path, api+"/")):]
}

// sign is a claim with its signature, which covers what is asked.
func (t *Tokens) sign(claim []byte, r *http.Request, body []byte) string {
	sum := sha256.Sum256(body)
	m := hmac.New(sha256.New, t.peerKey())
	for _, part := range []string{r.Method, askedURI(r), r.Header.Get(partitionsHeader), hex.EncodeToString(sum[:]), string(claim)} {
		_, _ = io.WriteString(m, part)
		_, _ = m.Write([]byte{0})
	}
	return base64.RawURLEncoding.EncodeToString(claim) + "." + base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// vouch makes a request to another console one of the caller's. It sends no token.
func (c *call) vouch(out *http.Request, body []byte) error {
	out.Header.Del("Authorization")
	out.Header.Del(callerHeader)
	if c.cfg.Tokens == nil {
		return nil
	}
	claim, err := json.Marshal(callerClaim{c.who.name, c.who.role, c.cfg.Now().Add(callerWithin).Unix()})
	if err != nil {
		return err
	}
	out.Header.Set(callerHeader, c.cfg.Tokens.sign(claim, out, body))
	return nil
}

// vouched is who asks through another console.
func (c *Console) vouched(r *http.Request) (caller, error) {
	said := r.Header.Get(callerHeader)
	text, _, _ := strings.Cut(said, ".")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return caller{}, c.denied(r, "what another console says of who asks can't be read")
	}
	var body []byte
	if r.Body != nil {
		if body, err = io.ReadAll(http.MaxBytesReader(nil, r.Body, bodyMaxBytes)); err != nil {
			return caller{}, badRequest("the body can't be read: %v", err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	var claim callerClaim
	if !hmac.Equal([]byte(c.cfg.Tokens.sign(raw, r, body)), []byte(said)) || json.Unmarshal(raw, &claim) != nil {
		return caller{}, c.denied(r, "another console vouches for who asks, and has another file of tokens")
	}
	if c.cfg.Now().Unix() > claim.Until {
		return caller{}, c.denied(r, "another console vouched for who asks more than a minute ago; ask again")
	}
	return caller{name: claim.Name, role: claim.Role, vouched: true}, nil
}
