package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/console"
)

// TestTokensFollowTheirFile: a changed file of tokens is reloaded. An invalid one changes nothing, and is logged once.
func TestTokensFollowTheirFile(t *testing.T) {
	o := consoleFlags{listen: "127.0.0.1:0", tokens: filepath.Join(t.TempDir(), "tokens")}
	write := func(text string) {
		if err := os.WriteFile(o.tokens, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("viewer vera 0123456789abcdef\n")
	if _, err := o.check(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	taken := 0
	var last *console.Tokens
	files := &watchedFiles{paths: []string{o.tokens}, log: slog.New(slog.NewTextHandler(&said, nil)), what: "the tokens", load: func() error {
		again, err := o.readTokens()
		if err == nil {
			last = again
			taken++
		}
		return err
	}}
	files.last = files.content()
	for _, step := range []struct {
		change func()
		taken  int
		said   string // the additional log output
	}{
		{func() {}, 0, ""},
		{func() { write("viewer vera fedcba9876543210\n") }, 1, "tokens reloaded"},
		{func() { write("viewer vera\n") }, 1, "can't be reloaded"},
		{func() {}, 1, ""},
		{func() { _ = os.Remove(o.tokens) }, 1, "can't be reloaded"},
		{func() { write("viewer vera fedcba9876543210\n"); _ = os.Chmod(o.tokens, 0o644) }, 1, "can't be reloaded"},
		{func() { _ = os.Chmod(o.tokens, 0o600) }, 2, "tokens reloaded"},
	} {
		step.change()
		said.Reset()
		files.reloadIfChanged()
		if taken != step.taken || (step.said == "") != (said.Len() == 0) || !strings.Contains(said.String(), step.said) || strings.Contains(said.String(), "fedcba") {
			t.Errorf("%d times taken, want %d; said %q, want %q", taken, step.taken, &said, step.said)
		}
	}
	if last == nil {
		t.Error("no tokens were read")
	}
}

// TestCertificateFollowsItsFiles: a certificate is replaced while the console serves. A key that others may read, or
// that doesn't match the certificate, changes nothing.
func TestCertificateFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	first := writePair(t, cert, key, "first")
	var c certificate
	if err := c.load(cert, key); err != nil {
		t.Fatal(err)
	}
	served := func() string {
		pair, err := c.config().GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.Subject.CommonName
	}
	if got := served(); got != "first" {
		t.Errorf("serves %q", got)
	}
	writePair(t, cert, key, "second")
	if err := os.WriteFile(key, first, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.load(cert, key); err == nil || served() != "first" {
		t.Errorf("a key of another certificate: %v, serves %q", err, served())
	}
	writePair(t, cert, key, "third")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.load(cert, key); err == nil || served() != "first" {
		t.Errorf("a key that others may read: %v, serves %q", err, served())
	}
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.load(cert, key); err != nil || served() != "third" {
		t.Errorf("a new pair: %v, serves %q", err, served())
	}
	for name, o := range map[string]consoleFlags{
		"no key":         {listen: "127.0.0.1:0", cert: cert},
		"no certificate": {listen: "127.0.0.1:0", key: key},
		"no such file":   {listen: "127.0.0.1:0", cert: cert, key: key + "x"},
		"a bad origin":   {listen: "127.0.0.1:0", origins: []string{"waybill.example/path"}},
	} {
		if _, err := o.check(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	o := consoleFlags{listen: "127.0.0.1:0", cert: cert, key: key, origins: []string{"https://waybill.example"}}
	if _, err := o.check(); err != nil || o.scheme() != "https" {
		t.Errorf("%s: %v", o.scheme(), err)
	}
}

// writePair writes a self-signed certificate and its key, and returns the key.
func writePair(t *testing.T, cert, key, name string) []byte {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	if err := os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, keyPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	return keyPEM
}
