package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unfinished matches marks of unfinished work.
var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)

// TestNoMarks checks pages, scripts and definitions. godox checks Go.
func TestNoMarks(t *testing.T) {
	kinds := []string{".md", ".yaml", ".yml", ".sh", ".py", ".toml", ".xml", ".properties", ".html", ".css", ".js"}
	err := walk(func(p string) error {
		if !slices.Contains(kinds, path.Ext(p)) || p == ".golangci.yml" { // it names them
			return nil
		}
		data, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			return err
		}
		if m := unfinished.Find(data); m != nil {
			t.Errorf("%s: %s: finish it now, or document the limitation.", p, m)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStatesPage checks that the page of states names every state and every verb. The tests of package events
// check that it is generated from the tables.
func TestStatesPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/states.md"))
	if err != nil {
		t.Fatalf("%v: go generate ./events writes it", err)
	}
	if !strings.Contains(string(page), "```mermaid\nstateDiagram-v2") {
		t.Error("docs/reference/states.md has no diagram: go generate ./events")
	}
}
