// Package sources is for tests that build a program with a command of their own. go test caches a
// result while the test binary and the files that it opens are unchanged (go help test). It doesn't see
// what the command reads. Importing the program's packages is not enough, since the linker may drop
// them.
package sources

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Open opens all files of a module that a program may be built from, embedded ones too, so that go
// test runs the calling test again when one changes. It skips testdata, Markdown and hidden files.
// root is the module's folder.
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
