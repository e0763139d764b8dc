// Package lint tests rules of this module that no linter of .golangci.yml covers. A failure says why the rule
// exists and what to do instead.
package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/waybill-run/waybill"
	root   = "../.."
)

// file is one parsed source file; path is relative to the module's root.
type file struct {
	path string
	pkg  string // folder of its package, "" for the root
	test bool
	ast  *ast.File
	fset *token.FileSet
}

// at returns the position of a node in the form of a compiler.
func (f *file) at(n ast.Node) string {
	p := f.fset.Position(n.Pos())
	return f.path + ":" + strconv.Itoa(p.Line)
}

// parse parses a file as if its path were p.
func parse(p string, src []byte) (*file, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, p, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	dir := path.Dir(p)
	if dir == "." {
		dir = ""
	}
	return &file{path: p, pkg: dir, test: strings.HasSuffix(p, "_test.go"), ast: tree, fset: fset}, nil
}

// sources parses every Go file of the module once.
var sources = sync.OnceValues(func() ([]*file, error) {
	var fs []*file
	err := walk(func(p string) error {
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		src, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			return err
		}
		f, err := parse(p, src)
		if err == nil {
			fs = append(fs, f)
		}
		return err
	})
	return fs, err
})

// walk visits the source files of the module. It skips testdata, hidden folders, build downloads and nested
// modules.
func walk(visit func(p string) error) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if !d.IsDir() {
			return visit(rel)
		}
		name := d.Name()
		if rel == "." {
			return nil
		}
		_, nested := os.Stat(filepath.Join(p, "go.mod"))
		if name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || nested == nil ||
			rel == "deploy/kafka/libs" || rel == "deploy/kafka/run" {
			return filepath.SkipDir
		}
		return nil
	})
}

// eachFile runs a rule over the module's source.
func eachFile(t *testing.T, rule func(*file) []string) {
	t.Helper()
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d files found", len(files))
	}
	for _, f := range files {
		for _, fault := range rule(f) {
			t.Error(fault)
		}
	}
}

// TestRulesCatch tests the rules: each file of testdata has its assumed path in the first line, and "// want"
// comments with the expected faults.
func TestRulesCatch(t *testing.T) {
	rules := []func(*file) []string{importFaults, pureFaults}
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal(err, "no testdata")
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(src), "\n")
			f, err := parse(strings.TrimPrefix(first, "// file: "), src)
			if err != nil {
				t.Fatal(err)
			}
			found := map[string][]string{}
			for _, rule := range rules {
				for _, fault := range rule(f) {
					where, what, _ := strings.Cut(fault, ": ")
					found[where] = append(found[where], what)
				}
			}
			line := 0
			for text := range strings.Lines(string(src)) {
				line++
				where := f.path + ":" + strconv.Itoa(line)
				_, want, wanted := strings.Cut(strings.TrimSpace(text), "// want ")
				got := found[where]
				delete(found, where)
				if wanted != (len(got) > 0) || wanted && !strings.Contains(strings.Join(got, " "), want) {
					t.Errorf("%s: found %q, want %q", where, got, want)
				}
			}
			for where, got := range found {
				t.Errorf("%s: found %q", where, got)
			}
		})
	}
}

func importPath(i *ast.ImportSpec) string {
	p, err := strconv.Unquote(i.Path.Value)
	if err != nil {
		return i.Path.Value
	}
	return p
}

// within reports whether a folder is one of roots or below one.
func within(folder string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return folder == r || strings.HasPrefix(folder, r+"/") })
}

func fault(where, format string, args ...any) string {
	return where + ": " + fmt.Sprintf(format, args...)
}
