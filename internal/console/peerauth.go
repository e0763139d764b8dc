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
// can make, for this one request and a minute. While a file of tokens is replaced consoles hold different ones for a while: a
// claim is signed with the keys of the last files, too, and one signature that another console can check is enough. What a false console learns of that is good for the same request only.

const (
	callerHeader = "Waybill-Caller"
	callerWithin = time.Minute
	// pastKeyWithin is how long the key of a file of tokens that was replaced is valid: within it all consoles are to get the new file.
	pastKeyWithin = 5 * time.Minute
	pastKeysMost  = 4
)

// pastKey is the key of a file of tokens that was replaced.
type pastKey struct {
	key   []byte
	until time.Time
}

// callerClaim says who asks.
type callerClaim struct {
	Name  string `json:"name"`
	Role  Role   `json:"role"`
	Until int64  `json:"until"` // Unix time, in seconds, of the brokers: consoles' own clocks may differ
}

// peerKey is made of all tokens: who holds some can't make it.
func peerKey(held []heldToken) []byte {
	held = slices.Clone(held)
	slices.SortFunc(held, func(a, b heldToken) int { return bytes.Compare(a.digest[:], b.digest[:]) })
	h := sha256.New()
	_, _ = io.WriteString(h, "waybill console peers\n")
	for i := range held {
		_, _ = h.Write(held[i].digest[:])
	}
	return h.Sum(nil)
}

// peerKeys are the valid keys: of the tokens now, and of those before.
func (t *Tokens) peerKeys(now time.Time) [][]byte {
	set := t.now.Load()
	keys := [][]byte{set.key}
	for _, p := range set.past {
		if now.Before(p.until) {
			keys = append(keys, p.key)
		}
	}
	return keys
}

// askedURI is what a request asks for, without the path of a proxy that the console is behind: the proxy removes it.
func askedURI(r *http.Request) string {
	uri := r.URL.RequestURI()
	path, _, _ := strings.Cut(uri, "?")
	return uri[max(0, strings.LastIndex(path, api+"/")):]
}

// signature is of a claim by a key. It covers what is asked.
func signature(key, claim []byte, r *http.Request, body []byte) string {
	sum := sha256.Sum256(body)
	m := hmac.New(sha256.New, key)
	for _, part := range []string{r.Method, askedURI(r), r.Header.Get(partitionsHeader), hex.EncodeToString(sum[:]), string(claim)} {
		_, _ = io.WriteString(m, part)
		_, _ = m.Write([]byte{0})
	}
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// sign is a claim with its signatures, by each valid key: the console that is asked may have replaced its file or not.
func (t *Tokens) sign(claim []byte, r *http.Request, body []byte, now time.Time) string {
	said := base64.RawURLEncoding.EncodeToString(claim)
	for _, key := range t.peerKeys(now) {
		said += "." + signature(key, claim, r, body)
	}
	return said
}

// signed reports whether one of a claim's signatures is by a valid key.
func (t *Tokens) signed(signatures, claim []byte, r *http.Request, body []byte, now time.Time) bool {
	sent := bytes.SplitN(signatures, []byte("."), pastKeysMost+2) // what is more than there may be fits none
	return slices.ContainsFunc(t.peerKeys(now), func(key []byte) bool {
		want := []byte(signature(key, claim, r, body))
		return slices.ContainsFunc(sent, func(s []byte) bool { return hmac.Equal(s, want) })
	})
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
	out.Header.Set(callerHeader, c.cfg.Tokens.sign(claim, out, body, c.cfg.Now()))
	return nil
}

// vouched is who asks through another console.
func (c *Console) vouched(r *http.Request) (caller, error) {
	said := r.Header.Get(callerHeader)
	text, signatures, _ := strings.Cut(said, ".")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return caller{}, c.refusedClaim(r, "what another console says of who asks can't be read")
	}
	var body []byte
	if r.Body != nil {
		if body, err = io.ReadAll(http.MaxBytesReader(nil, r.Body, bodyMaxBytes)); err != nil {
			return caller{}, badRequest("the body can't be read: %v", err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	var claim callerClaim
	if !c.cfg.Tokens.signed([]byte(signatures), raw, r, body, c.cfg.Now()) || json.Unmarshal(raw, &claim) != nil {
		return caller{}, c.refusedClaim(r, "another console vouches for who asks, and has another file of tokens")
	}
	if c.cfg.Now().Unix() > claim.Until {
		return caller{}, c.refusedClaim(r, "another console vouched for who asks more than a minute ago; ask again")
	}
	return caller{name: claim.Name, role: claim.Role, vouched: true}, nil
}
