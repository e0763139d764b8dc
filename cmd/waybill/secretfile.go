package main

import (
	"io"
	"os"
)

// readSecret reads the file of a flag that holds a secret. It refuses a file that others on this machine can
// use.
func readSecret(flag, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, exit(exitUsage, "--%s: %w", flag, err)
	}
	defer func() { _ = f.Close() }() // only read: an error on close loses nothing
	info, err := f.Stat()
	if err != nil {
		return nil, exit(exitUsage, "--%s: %w", flag, err)
	}
	if info.Mode().Perm()&0o037 != 0 && info.Mode().IsRegular() {
		return nil, usage("--%s %s: its permissions %04o let other users read or change it; chmod it to 600 or 640 (in Kubernetes: defaultMode 0440)", flag, path, info.Mode().Perm())
	}
	secret, err := io.ReadAll(f)
	if err != nil {
		return nil, exit(exitUsage, "--%s: %w", flag, err)
	}
	return secret, nil
}
