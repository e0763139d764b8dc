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

// Open opens all files of a module that a program may be made of, those that are embedded
// too, so that the test that calls it is run again when one changes. Not those are opened
// that are for tests or for people: testdata, Markdown, and what is hidden. root is the
// module's folder.
func Open(root string) error {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) == ".md":
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
