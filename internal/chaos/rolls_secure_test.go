package chaos

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/waybill-run/waybill/deploy/kafka/node"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// rollAccess configures how the processes connect to the brokers.
type rollAccess struct {
	brokers []string
	flags   []string // of every command
}

// startRollCluster starts three nodes. With -roll-tls the processes connect with TLS and SASL, as in production.
// Opening such a connection takes several round trips, and a stopping broker may interrupt each of them.
func startRollCluster(t *testing.T, dir string) (*node.Cluster, rollAccess) {
	t.Helper()
	if !*rollTLS {
		c := kafkatest.KafkaNodes(t, 3, clusterDefaults())
		return c, rollAccess{brokers: c.Brokers()}
	}
	o := kafkatest.Guarded("roll")
	o.Nodes = 3
	for name := range o.Listeners {
		o.Listeners[name] = "SASL_SSL"
	}
	for k, v := range clusterDefaults() {
		o.Overrides[k] = v
	}
	certificate, key := rollCertificate(t)
	o.Overrides["listener.name.secure.ssl.keystore.type"] = "PEM"
	o.Overrides["listener.name.secure.ssl.keystore.certificate.chain"] = string(certificate)
	o.Overrides["listener.name.secure.ssl.keystore.key"] = string(key)
	o.Overrides["allow.everyone.if.no.acl.found"] = "true"
	ca, password := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "password")
	for path, text := range map[string]string{ca: string(certificate), password: kafkatest.Password} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := kafkatest.KafkaCluster(t, o)
	return c, rollAccess{brokers: kafkatest.GuardedAddrs(c),
		flags: []string{"--tls-ca", ca, "--sasl-mechanism", "PLAIN", "--sasl-user", "roll", "--sasl-password-file", password}}
}

// rollCertificate returns a self-signed certificate for all nodes, and its key.
func rollCertificate(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rolls"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2), net.IPv4(127, 0, 0, 3)}}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	coded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: coded})
}
