package mutation

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// root is the module's root, from here.
var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

// mutate makes the mutated files, by their absolute paths.
func (m *mutation) mutate() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, e := range m.edits {
		path := filepath.Join(root, filepath.FromSlash(e.file))
		src, ok := files[path]
		if !ok {
			var err error
			if src, err = os.ReadFile(path); err != nil {
				return nil, fmt.Errorf("mutation %s: %w", m.name, err)
			}
		}
		if n := bytes.Count(src, []byte(e.old)); n != 1 || e.old == e.new {
			return nil, fmt.Errorf("mutation %s: the source changed: adapt the mutation; this is %d times in %s, not once:\n%s", m.name, n, e.file, e.old)
		}
		files[path] = bytes.Replace(src, []byte(e.old), []byte(e.new), 1)
	}
	return files, nil
}
