// Package sources is for tests that build a program with a command of their own. go test
// doesn't run a test again whose binary is the same and whose files are (go help test): it
// knows nothing of what the command reads, and of a package that is imported for its sake
// the linker may keep nothing.
package sources

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Open opens all Go files of a module, and what it requires, so that the test that calls it
// is run again when one changes. root is the module's folder.
func Open(root string) error {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" && d.Name() != "go.mod" && d.Name() != "go.sum":
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return f.Close()
	})
	if err != nil {
		return fmt.Errorf("open the sources of %s: %w", root, err)
	}
	return nil
}
