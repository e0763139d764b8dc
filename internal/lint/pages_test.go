package lint

import (
	"go/ast"
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

// libraries holds the files of others that the console's page is bundled of.
const libraries = "internal/console/web/third_party/"

// TestNoMarks checks pages, scripts and definitions. godox checks Go.
func TestNoMarks(t *testing.T) {
	kinds := []string{".md", ".yaml", ".yml", ".sh", ".py", ".toml", ".xml", ".properties", ".html", ".css", ".js"}
	err := walk(func(p string) error {
		if !slices.Contains(kinds, path.Ext(p)) || p == ".golangci.yml" || strings.HasPrefix(p, libraries) { // .golangci.yml names them
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

// TestTestsOfCI checks that the tests that .ci/run leaves out of the race detector exist. Without it, a renamed test
// would run there too, and take minutes.
func TestTestsOfCI(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci/run"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)\nraced_not=.*?\n(.*?)\nEND\n`).FindSubmatch(script)
	if m == nil {
		t.Fatal(".ci/run has no list raced_not: change this test with it")
	}
	declared := map[string]bool{}
	eachFile(t, func(f *file) []string {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test {
				declared[fn.Name.Name] = true
			}
		}
		return nil
	})
	for _, name := range strings.Fields(string(m[1])) {
		if !declared["Test"+name] {
			t.Errorf(".ci/run leaves out Test%s, which doesn't exist: write the test's new name, or remove it", name)
		}
	}
}
