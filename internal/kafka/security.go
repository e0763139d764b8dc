package kafka

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// TLSFromFiles returns a TLS configuration, TLS 1.2 or higher, from PEM files: ca has the trusted certificates (empty:
// the system's), cert and key the client's own (both or neither).
func TLSFromFiles(ca, cert, key string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("a TLS client certificate needs its key and the key its certificate: got certificate %q, key %q; name both or neither", cert, key)
	}
	if ca != "" {
		b, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("trusted certificates: %w", err)
		}
		if cfg.RootCAs, err = certPool(b); err != nil {
			return nil, fmt.Errorf("trusted certificates of %s: %w", ca, err)
		}
	}
	if cert == "" {
		return cfg, nil
	}
	chainPEM, err := os.ReadFile(cert)
	if err != nil {
		return nil, fmt.Errorf("TLS client certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(key)
	if err != nil {
		return nil, fmt.Errorf("TLS client key: %w", err)
	}
	pair, err := keyPair(chainPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("TLS client certificate %s with key %s: %w", cert, key, err)
	}
	cfg.Certificates = []tls.Certificate{pair}
	return cfg, nil
}

// SASL returns the mechanism PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 for a user with a password. Any other name is an
// error.
func SASL(mechanism, user, pass string) (sasl.Mechanism, error) {
	if user == "" || pass == "" {
		return nil, fmt.Errorf("SASL %s needs a user and a password; give both", mechanism)
	}
	switch strings.ToUpper(mechanism) {
	case "PLAIN":
		return plain.Auth{User: user, Pass: pass}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: pass}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: pass}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("SASL mechanism %q is not supported; use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", mechanism)
}

// skipHostnameCheck makes cfg verify the broker's certificate chain but not its host name, as Java does for an empty
// ssl.endpoint.identification.algorithm.
func skipHostnameCheck(cfg *tls.Config) {
	roots := cfg.RootCAs
	cfg.InsecureSkipVerify = true // of Go's own check, which includes the name; the chain is verified below
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return errors.New("the broker presented no certificate")
		}
		opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range cs.PeerCertificates[1:] {
			opts.Intermediates.AddCert(c)
		}
		_, err := cs.PeerCertificates[0].Verify(opts)
		return err
	}
}

// certPool returns a pool with the certificates in a PEM text.
func certPool(text []byte) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	blocks, err := pemBlocks(text)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", n+1, err)
		}
		pool.AddCert(c)
		n++
	}
	if n == 0 {
		return nil, errors.New("no certificate in PEM form; export a Java trust store with " +
			"`keytool -exportcert -rfc -alias NAME -keystore STORE` and name the result")
	}
	return pool, nil
}

// keyPair returns a certificate chain and private key from PEM texts, which may contain other blocks too (Java puts
// both in one file).
func keyPair(chainText, keyText []byte) (tls.Certificate, error) {
	chain, err := pemBlocks(chainText)
	if err != nil {
		return tls.Certificate{}, err
	}
	keys, err := pemBlocks(keyText)
	if err != nil {
		return tls.Certificate{}, err
	}
	var chainPEM, keyPEM bytes.Buffer
	for _, b := range chain {
		if b.Type == "CERTIFICATE" {
			chainPEM.Write(pem.EncodeToMemory(b))
		}
	}
	for _, b := range keys {
		if b.Type == "ENCRYPTED PRIVATE KEY" {
			return tls.Certificate{}, errors.New("the private key is encrypted, which is not supported; " +
				"write it in the clear with `openssl pkcs8 -in KEY -out CLEAR` and protect the file")
		}
		if strings.HasSuffix(b.Type, "PRIVATE KEY") {
			keyPEM.Write(pem.EncodeToMemory(b))
		}
	}
	switch {
	case chainPEM.Len() == 0:
		return tls.Certificate{}, errors.New("no certificate in PEM form; convert a Java key store with " +
			"`keytool -importkeystore -deststoretype PKCS12` and `openssl pkcs12 -nodes`")
	case keyPEM.Len() == 0:
		return tls.Certificate{}, errors.New("no private key in PEM form; convert a Java key store with " +
			"`keytool -importkeystore -deststoretype PKCS12` and `openssl pkcs12 -nodes`")
	}
	return tls.X509KeyPair(chainPEM.Bytes(), keyPEM.Bytes())
}

var pemBlock = regexp.MustCompile(`(?s)-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END ([A-Z0-9 ]+)-----`)

// pemBlocks parses PEM as Java does. White space may split the body anywhere, or the body may be a single line, as in a
// properties file. encoding/pem accepts only the standard line format.
func pemBlocks(text []byte) ([]*pem.Block, error) {
	var blocks []*pem.Block
	for _, m := range pemBlock.FindAllSubmatch(text, -1) {
		if !bytes.Equal(m[1], m[3]) {
			return nil, fmt.Errorf("PEM block begins as %q and ends as %q", m[1], m[3])
		}
		body := strings.Join(strings.Fields(string(m[2])), "")
		der, err := base64.StdEncoding.DecodeString(body)
		if err != nil {
			return nil, fmt.Errorf("PEM block %q: %w", m[1], err)
		}
		blocks = append(blocks, &pem.Block{Type: string(m[1]), Bytes: der})
	}
	return blocks, nil
}
