package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// codePages returns the pages for contributors. They name files, functions and tests, which a rename would silently
// make stale.
func codePages(t *testing.T) []string {
	t.Helper()
	all := []string{"ARCHITECTURE.md"}
	for _, dir := range []string{"internals", "explanation", "adr", "contributing"} {
		found, err := filepath.Glob(filepath.Join(repository, "docs", dir, "*.md"))
		if err != nil || len(found) == 0 {
			t.Fatalf("docs/%s has no pages (%v)", dir, err)
		}
		for _, f := range found {
			name, err := filepath.Rel(repository, f)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, filepath.ToSlash(name))
		}
	}
	return all
}

var (
	namedTest     = regexp.MustCompile("`(Test[A-Z]\\w+)`")
	namedPath     = regexp.MustCompile("`([a-z]\\w*/[a-z/_]+\\.(?:go|js|txt|sha256))`")
	namedFile     = regexp.MustCompile("`([a-z_]+\\.(?:go|js))`")
	namedExported = regexp.MustCompile("`(?:[A-Za-z]+\\.)+([A-Z][A-Za-z]+)`")
	namedFunction = regexp.MustCompile("`(?:\\w+\\.)*(\\w+)\\(\\)`")
	// functionsOf matches a file with its functions: `scheduler/decide.go`: `Decide()`, `decider.reply()`.
	functionsOf = regexp.MustCompile("`([a-z]\\w*/[a-z/_]+\\.go)`: (`[^`]+\\(\\)`(?:,\\s`[^`]+\\(\\)`)*)")
)

// TestCodePagesNameWhatIsThere: files, functions, types, fields and tests that the pages name exist.
func TestCodePagesNameWhatIsThere(t *testing.T) {
	tests := testNames(t)
	files, declared := whatIsThere(t)
	functions := functionNames(t)
	counts := map[string]int{}
	each := func(page, kind string, pattern *regexp.Regexp, prose string, there func(name string) bool) {
		for _, m := range pattern.FindAllStringSubmatch(prose, -1) {
			counts[kind]++
			if !there(m[1]) {
				t.Errorf("%s names %s, and there is no such %s", page, m[0], kind)
			}
		}
	}
	for _, name := range codePages(t) {
		prose := readPage(t, name).prose
		each(name, "test", namedTest, prose, func(n string) bool { return tests[n] })
		each(name, "path", namedPath, prose, func(n string) bool {
			_, err := os.Stat(filepath.Join(repository, n))
			return err == nil
		})
		each(name, "file", namedFile, prose, func(n string) bool { return files[n] })
		each(name, "declaration", namedExported, prose, func(n string) bool { return declared[n] })
		each(name, "function", namedFunction, prose, func(n string) bool { return len(functions[n]) > 0 })
		for _, m := range functionsOf.FindAllStringSubmatch(prose, -1) {
			for _, f := range namedFunction.FindAllStringSubmatch(m[2], -1) {
				counts["function of a file"]++
				if !slices.Contains(functions[f[1]], m[1]) {
					t.Errorf("%s says that %s has %s: it is in %q", name, m[1], f[0], functions[f[1]])
				}
			}
		}
	}
	for _, kind := range []string{"test", "path", "file", "declaration", "function", "function of a file"} {
		if counts[kind] < 10 {
			t.Errorf("%d names of the kind %q: this proves nothing", counts[kind], kind)
		}
	}
}

// functionNames returns functions and methods outside of tests, with the files that declare them.
func functionNames(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	declaration := regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?(\w+)[\[(]`)
	err := filepath.WalkDir(repository, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		file, _ := filepath.Rel(repository, path)
		for _, m := range declaration.FindAllSubmatch(src, -1) {
			names[string(m[1])] = append(names[string(m[1])], filepath.ToSlash(file))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestCodePagesAreShort bounds the length of the pages: long pages aren't read, and so not kept correct.
func TestCodePagesAreShort(t *testing.T) {
	for _, name := range codePages(t) {
		most := 200
		switch {
		case name == "ARCHITECTURE.md":
			most = 300
		case strings.HasPrefix(name, "docs/adr/") && name != "docs/adr/README.md":
			most = 45
		}
		src, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(src), "\n"); n > most {
			t.Errorf("%s has %d lines; at most %d. Split it where the subject changes.", name, n, most)
		}
	}
}

// TestDecisionRecords: each record has the three sections, and the index lists it by its title.
func TestDecisionRecords(t *testing.T) {
	index := readPage(t, "docs/adr/README.md").prose
	title := regexp.MustCompile(`^# (\d{4}): (.+)\n`)
	records := 0
	for _, name := range codePages(t) {
		base, is := strings.CutPrefix(name, "docs/adr/")
		if !is || base == "README.md" {
			continue
		}
		records++
		prose := readPage(t, name).prose
		m := title.FindStringSubmatch(prose)
		if m == nil || !strings.HasPrefix(base, m[1]+"-") {
			t.Errorf("%s begins without \"# NNNN: title\" of its number", name)
			continue
		}
		for _, part := range []string{"## Context", "## Decision", "## Consequence"} {
			if !strings.Contains(prose, "\n"+part+"\n") {
				t.Errorf("%s has no %q", name, part)
			}
		}
		if row := "| [" + m[1] + "](" + base + ") | " + m[2] + " |"; !strings.Contains(index, row) {
			t.Errorf("docs/adr/README.md has no row %q", row)
		}
	}
	if records < 10 {
		t.Errorf("%d decision records found: the test proves nothing", records)
	}
}
