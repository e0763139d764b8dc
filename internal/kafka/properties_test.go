package kafka

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
	"github.com/waybill-run/waybill/internal/suite"
)

// pki is a temporary certificate authority. Its certificate for 127.0.0.1 is both the broker's and the client's.
type pki struct {
	dir, ca, cert, key string // file paths
	caPEM, certPEM     string
	keyPEM             string
	server             tls.Certificate
}

func newPKI(t *testing.T, hosts ...string) pki {
	t.Helper()
	p := pki{dir: t.TempDir()}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	must(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "broker"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	p.caPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}))
	p.certPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	p.keyPEM = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	p.ca, p.cert, p.key = p.file(t, "ca.pem", p.caPEM), p.file(t, "cert.pem", p.certPEM), p.file(t, "key.pem", p.keyPEM)
	p.server, err = tls.X509KeyPair([]byte(p.certPEM), []byte(p.keyPEM))
	must(t, err)
	return p
}

func (p pki) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(p.dir, name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// broker starts a broker with SASL and TLS that requires a client certificate.
func (p pki) broker(t *testing.T, clientAuth tls.ClientAuthType) string {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(p.caPEM))
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "ann", `p"w d`), kfake.Superuser("SCRAM-SHA-512", "ann", "s3cret"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{p.server}, ClientCAs: pool, ClientAuth: clientAuth}))
	must(t, err)
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	t.Cleanup(cancel)
	return ctx
}

func ping(t *testing.T, c Config) error {
	t.Helper()
	cl, err := kgo.NewClient(append(c.ClientOptions(), kgo.DialTimeout(2*time.Second), kgo.RequestRetries(0))...)
	must(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return cl.Ping(ctx)
}

func roundTrip(t *testing.T, c Config) {
	t.Helper()
	ctx := bounded(t)
	cl, err := kgo.NewClient(append(c.ClientOptions(), kgo.ConsumeTopics("secured"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	must(t, err)
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "secured"); !errors.Is(err, kerr.TopicAlreadyExists) {
		must(t, err)
	}
	must(t, cl.ProduceSync(ctx, &kgo.Record{Topic: "secured", Value: []byte(t.Name())}).FirstErr())
	last := ""
	for last != t.Name() && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { last = string(r.Value) })
	}
	if last != t.Name() {
		t.Errorf("read %q back", last)
	}
}

// oneLine returns PEM on one line, as it is often written in a properties file.
func oneLine(pemText string) string { return strings.ReplaceAll(strings.TrimSpace(pemText), "\n", " ") }

func TestPropertiesReachASecuredBroker(t *testing.T) {
	p := newPKI(t, "127.0.0.1")
	addr := p.broker(t, tls.RequireAndVerifyClientCert)
	both := p.file(t, "both.pem", p.keyPEM+p.certPEM)
	for name, text := range map[string]string{
		"java, files, scram": "bootstrap.servers=" + addr + "\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n" +
			`sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \` + "\n" +
			`    username="ann" password="s3cret";` + "\n" +
			"ssl.truststore.type=PEM\nssl.truststore.location=" + p.ca + "\nssl.keystore.type=PEM\nssl.keystore.location=" + both + "\n",
		"java, inline, plain": "bootstrap.servers : " + addr + " , " + addr + "\n! a comment\nsecurity.protocol SASL_SSL\nsasl.mechanism=PLAIN\n" +
			`sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="p\\"w d";` + "\n" +
			"ssl.truststore.type=PEM\nssl.truststore.certificates=" + oneLine(p.caPEM) + "\nssl.keystore.type=PEM\n" +
			"ssl.keystore.certificate.chain=" + strings.ReplaceAll(strings.TrimSpace(p.certPEM), "\n", "\\n\\\n   ") +
			"\nssl.keystore.key=" + oneLine(p.keyPEM) + "\n",
		"librdkafka's names": "bootstrap.servers=" + addr + "\r\nsecurity.protocol=sasl_ssl\r\nsasl.mechanism=PLAIN\r\nsasl.username=ann\r\n" +
			"sasl.password=p\"w d\r\nssl.ca.location=" + p.ca + "\r\nssl.keystore.location=" + both + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseProperties(p.file(t, "client.properties", text))
			must(t, err)
			if c.Brokers[0] != addr || c.TLS.MinVersion != tls.VersionTLS12 {
				t.Fatalf("brokers %q, TLS from %x", c.Brokers, c.TLS.MinVersion)
			}
			roundTrip(t, c)
			dialed := c
			dialed.Dial = (&net.Dialer{}).DialContext
			if err := ping(t, dialed); err != nil {
				t.Errorf("over a dialer of one's own: %v", err)
			}
		})
	}
	t.Run("flags", func(t *testing.T) {
		cfg, err := TLSFromFiles(p.ca, p.cert, p.key)
		must(t, err)
		m, err := SASL("scram-sha-512", "ann", "s3cret")
		must(t, err)
		must(t, ping(t, Config{Brokers: []string{addr}}.With(Config{TLS: cfg}).With(Config{SASL: append(Config{}.SASL, m)})))
		wrong, err := SASL("SCRAM-SHA-512", "ann", "wrong")
		must(t, err)
		if err := ping(t, Config{Brokers: []string{addr}, TLS: cfg, SASL: append(Config{}.SASL, wrong)}); err == nil {
			t.Error("a wrong password was let in")
		}
	})
}

func TestHostNameCheckIsOffOnlyWhenSaidSo(t *testing.T) {
	p := newPKI(t, "elsewhere.example")
	addr := p.broker(t, tls.NoClientCert)
	other := newPKI(t, "127.0.0.1")
	base := "bootstrap.servers=" + addr + "\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=ann\nsasl.password=p\"w d\nssl.ca.location="
	for _, tt := range []struct {
		name, text string
		ok         bool
	}{
		{"default", base + p.ca, false},
		{"https", base + p.ca + "\nssl.endpoint.identification.algorithm=https", false},
		{"empty", base + p.ca + "\nssl.endpoint.identification.algorithm=", true},
		{"empty, another authority", base + other.ca + "\nssl.endpoint.identification.algorithm=", false},
	} {
		c, err := ParseProperties(p.file(t, "client.properties", tt.text))
		must(t, err)
		if err := ping(t, c); (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want success %v", tt.name, err, tt.ok)
		}
	}
}

func TestPropertiesNamesAllFaultsAtOnceWithTheirFix(t *testing.T) {
	p := newPKI(t, "127.0.0.1")
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"unknown": {"acks=1\nssl.truststore.password=x\nbootstrap.server=a:1\nsecurity.protocol=TLS", []string{
			"acks is not understood: remove it: records are always acknowledged", "bootstrap.server is not understood", "bootstrap.servers",
			"ssl.truststore.password is not understood: remove it: PEM files have none", "security.protocol=TLS: use PLAINTEXT, SSL"}},
		"without effect": {"sasl.username=u\nssl.ca.location=x", []string{
			"sasl.username has no effect without SASL", "ssl.ca.location has no effect without TLS"}},
		"stores": {"security.protocol=SSL\nssl.truststore.type=JKS\nssl.truststore.location=" + p.key + "\nssl.keystore.location=" + p.cert, []string{
			"ssl.truststore.type=JKS: only PEM", "no certificate in PEM form", "no private key in PEM form"}},
		"sasl":         {"security.protocol=SASL_PLAINTEXT\nsasl.username=u\nsasl.password=p", []string{"sasl.mechanism is missing: set it"}},
		"mechanism":    {"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.username=u\nsasl.password=p", []string{`"GSSAPI" is not supported; use PLAIN`}},
		"two ways":     {"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.jaas.config=x", []string{"keep one of the two"}},
		"jaas":         {"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=com.sun.Krb5LoginModule required;", []string{"Krb5LoginModule", "ScramLoginModule required username"}},
		"jaas, quote":  {"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=x.PlainLoginModule required username=\"a;", []string{"not closed"}},
		"no password":  {"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=x.PlainLoginModule required username=\"a\";", []string{"a user and a password"}},
		"bad escape":   {"client.id=\\u12", []string{"Line 1", "invalid unicode literal"}},
		"missing file": {"security.protocol=SSL\nssl.ca.location=/nowhere/ca.pem", []string{"/nowhere/ca.pem"}},
		"contradict":   {"security.protocol=SSL\nssl.ca.location=a\nssl.truststore.location=b", []string{"ssl.truststore.location and ssl.ca.location are set together"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := p.file(t, "client.properties", tt.text)
			_, err := ParseProperties(file)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range append(tt.want, file) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error lacks %q:\n%v", w, err)
				}
			}
		})
	}
	if _, err := TLSFromFiles("", p.cert, ""); err == nil || !strings.Contains(err.Error(), "both or neither") {
		t.Errorf("a certificate without its key: got %v", err)
	}
}

// TestWithTakesEveryField checks that With doesn't ignore a field: its setting would have no effect.
func TestWithTakesEveryField(t *testing.T) {
	full := Config{Brokers: []string{"b"}, Namespace: "n.", ClientID: "c", TLS: &tls.Config{}, SASL: make([]sasl.Mechanism, 1),
		Dial: (&net.Dialer{}).DialContext, Clock: brokerclock.NewClock(), Hooks: make([]kgo.Hook, 1), OneBroker: true, Reached: true}
	for name, merged := range map[string]Config{"patch": Config{}.With(full), "base": full.With(Config{})} {
		v := reflect.ValueOf(merged)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s: With loses %s (or this test must set it)", name, v.Type().Field(i).Name)
			}
		}
	}
	if full.With(Config{Brokers: []string{"x"}}).OneBroker {
		t.Error("other brokers are taken to be one")
	}
}

// TestScanPropertiesReadsJavasSyntax checks against the results of java.util.Properties.load for the same text.
func TestScanPropertiesReadsJavasSyntax(t *testing.T) {
	got, err := scanProperties([]byte("# c\n  ! c\n\na=1\nb : 2\nc 3\n d=x=y:z\ne\nf=a\\\n   b\\\\\ng=\\u00e9\\t\\q\nh\\ i\\==j\na=last\npassword=${HOME}x\r\n"))
	must(t, err)
	want := map[string]string{"a": "last", "b": "2", "c": "3", "d": "x=y:z", "e": "", "f": `ab\`, "g": "é\tq", "h i=": "j", "password": "${HOME}x"}
	if !maps.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestPropertyFixesAreOfNamesNotTaken checks that no supported name has a fix.
func TestPropertyFixesAreOfNamesNotTaken(t *testing.T) {
	for name := range propertyFixes {
		if slices.Contains(propertyNames, name) {
			t.Error(fmt.Sprint(name, " has a fix though it is taken"))
		}
	}
}
