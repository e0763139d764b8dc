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

const (
	maxFunctionLines = 70
	maxFileLines     = 700
)

// lengthFaults: what doesn't fit on a screen isn't read as one thought.
func lengthFaults(f *file) []string {
	var faults []string
	if f.lines > maxFileLines+1 {
		faults = append(faults, fault(f.path+":1", "%d lines; at most %d. Split it where the subject changes, and name the halves for what they hold.", f.lines-1, maxFileLines))
	}
	if f.test {
		return faults
	}
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		lines := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
		if lines > maxFunctionLines {
			faults = append(faults, fault(f.at(fn), "%s has %d lines; at most %d. Take out a part that can be named for what it does.", fn.Name.Name, lines, maxFunctionLines))
		}
	}
	return faults
}

// forbiddenNames say nothing of what a package holds, so everything ends there.
var forbiddenNames = []string{"util", "utils", "common", "helper", "helpers", "types", "manager", "managers", "misc", "shared", "base", "lib"}

func packageNameFaults(f *file) []string {
	name := strings.TrimSuffix(f.ast.Name.Name, "_test")
	if slices.Contains(forbiddenNames, name) || slices.Contains(forbiddenNames, path.Base(f.pkg)) {
		return []string{fault(f.at(f.ast.Name), "package %s: the name says nothing of what is in it. Name it for what it gives, or put the code where it is used.", name)}
	}
	return nil
}

// unfinished marks what somebody meant to do.
var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)

func markFaults(f *file) []string {
	var faults []string
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			if m := unfinished.FindString(c.Text); m != "" {
				faults = append(faults, fault(f.at(c), "%s: nobody comes back to it. Do it now, or write down in the docs what isn't there.", m))
			}
		}
	}
	return faults
}

// TestLengths, TestPackageNames and TestNoMarks hold every file.
func TestLengths(t *testing.T)      { eachFile(t, lengthFaults) }
func TestPackageNames(t *testing.T) { eachFile(t, packageNameFaults) }
func TestNoMarks(t *testing.T)      { eachFile(t, markFaults) }

// TestNoMarksElsewhere holds what is no Go: pages, scripts, definitions.
func TestNoMarksElsewhere(t *testing.T) {
	kinds := []string{".md", ".yaml", ".yml", ".sh", ".py", ".toml", ".xml", ".properties", ".html", ".css", ".js"}
	err := walk(func(p string) error {
		if !slices.Contains(kinds, path.Ext(p)) {
			return nil
		}
		data, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			return err
		}
		if m := unfinished.Find(data); m != nil {
			t.Errorf("%s: %s: nobody comes back to it. Do it now, or write down in the docs what isn't there.", p, m)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStatesPage: the page of states names every state and every verb. That it
// is what the tables make is held by the tests of package events.
func TestStatesPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/states.md"))
	if err != nil {
		t.Fatalf("%v: go generate ./events writes it", err)
	}
	if !strings.Contains(string(page), "```mermaid\nstateDiagram-v2") {
		t.Error("docs/reference/states.md has no diagram: go generate ./events")
	}
}
