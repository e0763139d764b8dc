package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A file of tokens that its owner's group may read is how Kubernetes mounts a Secret for who isn't
// root, and how a unit of systemd reads one of root's. What others may do is refused.
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
