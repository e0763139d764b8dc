package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhoMayReadTheTokens: a file of tokens may be readable by its group. Kubernetes mounts a Secret so for users other
// than root, and a systemd unit so reads a file of root's. Files with permissions for others, or writable by the group,
// are refused.
func TestWhoMayReadTheTokens(t *testing.T) {
	for mode, taken := range map[os.FileMode]bool{0o600: true, 0o700: true, 0o400: true, 0o440: true, 0o640: true, 0o660: false, 0o604: false, 0o644: false, 0o602: false, 0o601: false, 0o620: false} {
		o := consoleFlags{listen: "127.0.0.1:0", tokens: filepath.Join(t.TempDir(), "tokens")}
		if err := os.WriteFile(o.tokens, []byte("viewer vera 0123456789abcdef\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(o.tokens, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := o.check(); (err == nil) != taken {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
}

// TestWhoMayReadOtherSecrets: other files of secrets are refused for the same modes.
func TestWhoMayReadOtherSecrets(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	properties := file("client.properties", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" password=\"p\";\n")
	open := file("open.properties", "bootstrap.servers=127.0.0.1:1\n")
	password, token := file("password", "p"), file("token", "0123456789abcdef")
	for mode, taken := range map[os.FileMode]bool{0o600: true, 0o640: true, 0o440: true, 0o644: false, 0o604: false, 0o660: false} {
		for _, path := range []string{properties, open, password, token} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		for name, read := range map[string]func() error{
			"--kafka-config": func() error {
				_, err := (&connection{namespace: "waybill.", properties: properties}).kafka("test")
				return err
			},
			"--sasl-password-file": func() error {
				_, err := (&connection{namespace: "waybill.", mechanism: "PLAIN", user: "u", passFile: password}).kafka("test")
				return err
			},
			"--api-token-file": func() error {
				_, err := (&apiFlags{url: "http://127.0.0.1:1", tokenFile: token}).namedConsole()
				return err
			},
		} {
			if err := read(); (err == nil) != taken {
				t.Errorf("%s of mode %04o: %v", name, mode, err)
			}
		}
		if _, err := (&connection{namespace: "waybill.", properties: open}).kafka("test"); err != nil {
			t.Errorf("a file without secrets, of mode %04o: %v", mode, err)
		}
	}
}

// TestListenConsoleSaysWhatIsInUse checks that a console which takes another port than the default one says so.
func TestListenConsoleSaysWhatIsInUse(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	addr := taken.Addr().String()
	if l, err := listenConsole(t.Context(), addr, false, io.Discard); err == nil {
		t.Errorf("it listens on %s, which is in use", l.Addr())
	}
	var said strings.Builder
	l, err := listenConsole(t.Context(), addr, true, &said)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if want := addr + " is in use: the console listens on " + l.Addr().String() + "\n"; said.String() != want {
		t.Errorf("it said %q; want %q", said.String(), want)
	}
}
