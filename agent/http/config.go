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

// operationPlaceholder is the part of a URL that is replaced by the operation.
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

// dialTimeout bounds connecting, and then the TLS handshake. Tests shorten it.
var dialTimeout = 10 * time.Second

// Config configures the agent. URL is required.
type Config struct {
	// URL is absolute, http or https. {operation} in its path is replaced by the operation, escaped as one path
	// segment.
	URL string
	// HeaderFile is a file of "Name: value" lines that are sent with each call, such as credentials. Empty: none. The
	// file is read again when it changes. Its content is never logged. It is refused if all users may read it.
	HeaderFile string
	// CAFile is a PEM file of the certificate authorities to trust; empty: those of the system.
	CAFile string
	// Proxy is the URL of an HTTP proxy. Empty: none. The proxy variables of the environment are ignored.
	Proxy string
	// Timeout bounds one call; 0: only complete-by bounds it.
	Timeout time.Duration
	// MaxResponseBytes bounds the body of a response, from 1 to MaxResponseBytesMax. 0: DefaultMaxResponseBytes, the
	// most that a reply can carry.
	MaxResponseBytes int64
}

// New returns an agent. It reads the files named by the configuration. Its error has all faults.
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

// checkURL checks a URL template and returns its host.
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
		return "", errors.New("the URL contains credentials: put an Authorization line into the header file instead")
	case u.Fragment != "":
		return "", errors.New("the URL has a fragment, which is not sent to servers: remove it")
	case strings.Contains(u.Host+u.RawQuery, operationPlaceholderPlain):
		return "", fmt.Errorf("%s is in the URL's host or query: only the path may contain it", operationPlaceholder)
	}
	path, _, _ := strings.Cut(template, "?")
	if rest := strings.ReplaceAll(path, operationPlaceholder, ""); strings.ContainsAny(rest, "{}") {
		return "", fmt.Errorf("the URL's path has a brace outside of %s: write %%7B or %%7D for a literal brace", operationPlaceholder)
	}
	if _, err := expand(template, operationPlaceholderPlain); err != nil {
		return "", errors.New("the URL's path has a segment . or ..: write the resolved path")
	}
	return u.Host, nil
}

// operationPlaceholderPlain replaces the placeholder while a URL is checked.
const operationPlaceholderPlain = "waybill-operation-mark"

func newTransport(cfg Config) (*http.Transport, error) {
	// net/http continues to dial after the context of a call is done, for use by other calls. A host may accept
	// connections and send nothing. Without a timeout, each call would add such a connection.
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
			proxyErr = errors.New("the proxy is not an absolute URL: give one such as http://proxy:3128")
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
		return nil, fmt.Errorf("CA file %s: it contains no PEM certificate", name)
	}
	return pool, nil
}
