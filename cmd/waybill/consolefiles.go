package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/waybill-run/waybill/internal/console"
)

// reloadEvery is the interval at which a console checks its files of tokens and certificates for changes, such
// as those of a mounted Secret.
const reloadEvery = 5 * time.Second

// watchedFiles reloads files when their content changes. It is for one goroutine.
type watchedFiles struct {
	paths []string
	last  []byte
	load  func() error // loads the current content
	log   *slog.Logger
	what  string
}

// run checks the files until ctx ends. A fault in them is logged once; the last valid content stays in use.
func (w *watchedFiles) run(ctx context.Context) error {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.reloadIfChanged()
		}
	}
}

func (w *watchedFiles) reloadIfChanged() {
	now := w.content()
	if bytes.Equal(now, w.last) {
		return
	}
	w.last = now
	if err := w.load(); err != nil {
		w.log.Error(w.what+" can't be reloaded; the last valid content stays in use", "error", err)
		return
	}
	w.log.Info(w.what + " reloaded")
}

// content returns the content of all files. An unreadable file counts as its error's text.
func (w *watchedFiles) content() []byte {
	var all []byte
	for _, path := range w.paths {
		text, err := os.ReadFile(path)
		if err != nil {
			text = []byte(err.Error())
		}
		if info, err := os.Stat(path); err == nil {
			text = fmt.Append(text, info.Mode())
		}
		all = append(append(all, text...), 0)
	}
	return all
}

// certificate is the console's TLS certificate. It can be replaced while the console serves, and is safe for
// concurrent use.
type certificate struct {
	at atomic.Pointer[tls.Certificate]
}

func (c *certificate) load(cert, key string) error {
	if _, err := readSecret("http-tls-key", key); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return exit(exitUsage, "--http-tls-cert, --http-tls-key: %w", err)
	}
	c.at.Store(&pair)
	return nil
}

// config returns a server configuration that uses the current certificate for each connection.
func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if pair := c.at.Load(); pair != nil {
				return pair, nil
			}
			return nil, errors.New("no certificate was read")
		}}
}

// deniedLog logs and counts failed authentications.
func deniedLog(log *slog.Logger, count func()) func(console.Denial) {
	return func(d console.Denial) {
		count()
		if d.Log {
			log.Warn("console: no valid token", "source", d.Source, "path", d.Path, "reason", d.Reason, "others_since", d.Others)
		}
	}
}
