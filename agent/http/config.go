package http

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// operationMark is where a URL names the operation.
const operationPlaceholder = "{operation}"

// The defaults and bounds of Config.
const (
	DefaultMaxResponseBytes = events.MaxReplyBytes
	MaxResponseBytesMax     = 64 << 20
	caFileBytesMax          = 1 << 20
	responseHeaderBytesMax  = 64 << 10
	idleConnectionsMax      = 256 // for each host
	idleConnectionMax       = 60 * time.Second
)

// dialMost bounds the making of a connection, and the handshake of TLS after it. Tests have less.
var dialTimeout = 10 * time.Second

// Config says which service is called. URL must be set.
type Config struct {
	// URL is absolute, http or https; {operation} in its path stands for the
	// operation, which stays within its path segment.
	URL string
	// HeaderFile names a file of "Name: value" lines that are sent with every
	// call, such as credentials; empty: none. It is read again when it changes,
	// never logged, and refused if everyone may read it.
	HeaderFile string
	// CAFile names a PEM file of the authorities that the service's
	// certificate may come from; empty: those of the system.
	CAFile string
	// Proxy is the URL of an HTTP proxy; empty: none, whatever the environment
	// says.
	Proxy string
	// Timeout bounds one call; 0: only complete-by does.
	Timeout time.Duration
	// MaxResponseBytes bounds the body of an answer; 0: DefaultMaxResponseBytes,
	// which is also what a reply can carry.
	MaxResponseBytes int64
}

// New makes the agent. Its error lists all faults of the configuration; the
// files are read.
func New(cfg Config) (*Agent, error) {
	if cfg.MaxResponseBytes == 0 {
		cfg.MaxResponseBytes = DefaultMaxResponseBytes
	}
	host, urlErr := checkURL(cfg.URL)
	transport, transportErr := newTransport(cfg)
	a := &Agent{cfg: cfg, host: host, headers: &headerFile{path: cfg.HeaderFile}}
	_, headerErr := a.headers.read()
	var boundErr error
	if cfg.Timeout < 0 || cfg.MaxResponseBytes < 0 || cfg.MaxResponseBytes > MaxResponseBytesMax {
		boundErr = fmt.Errorf("timeout %v, responses of at most %d bytes: the timeout may not be negative, and responses are 1 to %d bytes",
			cfg.Timeout, cfg.MaxResponseBytes, MaxResponseBytesMax)
	}
	if err := errors.Join(urlErr, transportErr, headerErr, boundErr); err != nil {
		return nil, fmt.Errorf("http agent: %w", err)
	}
	a.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return a, nil
}

// checkURL returns the host that a template leads to.
func checkURL(template string) (host string, err error) {
	if template == "" {
		return "", errors.New("no URL: give one such as http://127.0.0.1:9001/{operation}")
	}
	u, err := url.Parse(strings.ReplaceAll(template, operationPlaceholder, operationPlaceholderPlain))
	if err != nil {
		return "", errors.New("the URL can't be parsed: give one such as http://127.0.0.1:9001/{operation}") // err repeats the URL
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("URL of scheme %q and host %q: it must be absolute, http or https", u.Scheme, u.Host)
	case u.User != nil:
		return "", errors.New("the URL holds credentials: put an Authorization line into the header file instead")
	case u.Fragment != "":
		return "", errors.New("the URL has a fragment, which no server gets")
	case strings.Contains(u.Host+u.RawQuery, operationPlaceholderPlain):
		return "", fmt.Errorf("%s stands in the URL's host or query: only its path may hold it", operationPlaceholder)
	}
	path, _, _ := strings.Cut(template, "?")
	if rest := strings.ReplaceAll(path, operationPlaceholder, ""); strings.ContainsAny(rest, "{}") {
		return "", fmt.Errorf("the URL's path holds a brace that is no part of %s: nothing else is filled in; write %%7B or %%7D if a brace is meant", operationPlaceholder)
	}
	if _, err := expand(template, operationPlaceholderPlain); err != nil {
		return "", errors.New("the URL's path holds a segment . or ..: write the path that is meant")
	}
	return u.Host, nil
}

// operationMarkPlain stands for the mark where a URL is checked.
const operationPlaceholderPlain = "waybill-operation-mark"

func newTransport(cfg Config) (*http.Transport, error) {
	// A call ends with its context, and what dials for it does not: net/http goes on, for
	// others. So a host that takes connections and says nothing would have one for each call.
	dialer := &net.Dialer{Timeout: dialTimeout}
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConns:           idleConnectionsMax,
		MaxIdleConnsPerHost:    idleConnectionsMax,
		IdleConnTimeout:        idleConnectionMax,
		MaxResponseHeaderBytes: responseHeaderBytesMax,
		ForceAttemptHTTP2:      true,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
	}
	var proxyErr, caErr error
	if cfg.Proxy != "" {
		p, err := url.Parse(cfg.Proxy)
		if err != nil || p.Host == "" {
			proxyErr = errors.New("the proxy is no absolute URL")
		}
		t.Proxy = http.ProxyURL(p)
	}
	if cfg.CAFile != "" {
		t.TLSClientConfig.RootCAs, caErr = readCAs(cfg.CAFile)
	}
	return t, errors.Join(proxyErr, caErr)
}

func readCAs(name string) (*x509.CertPool, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("CA file: %w", err)
	}
	if info.Size() > caFileBytesMax {
		return nil, fmt.Errorf("CA file %s: %d bytes; at most %d", name, info.Size(), caFileBytesMax)
	}
	pem, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("CA file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s: no certificate in PEM", name)
	}
	return pool, nil
}
