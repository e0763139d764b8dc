package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/workflow"
)

// graphOf matches the picture of a definition in a page: a comment with the definition's file, and the graph.
var graphOf = regexp.MustCompile("(?s)(<!-- graph of (docs/examples/[^ ]+\\.yaml) -->\n```mermaid\n)(.*?)(```\n)")

// TestExamplePages: each folder NAME of docs/examples with a definition NAME.yaml has tests, and the page
// docs/tutorials/NAME.md with the picture that `waybill workflow graph` draws. -update draws it again.
func TestExamplePages(t *testing.T) {
	definitions, err := filepath.Glob(filepath.Join(repository, "docs/examples/*/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, path := range definitions {
		name := filepath.Base(filepath.Dir(path))
		if filepath.Base(path) != name+".yaml" {
			continue
		}
		examples++
		if _, err := os.Stat(strings.TrimSuffix(path, ".yaml") + ".test.yaml"); err != nil {
			t.Errorf("docs/examples/%s has no %s.test.yaml", name, name)
		}
		drawGraphs(t, "docs/tutorials/"+name+".md", "docs/examples/"+name+"/"+name+".yaml")
	}
	if examples < 1 {
		t.Errorf("%d examples found: the test proves nothing", examples)
	}
}

// drawGraphs compares the pictures of a page with their definitions. One of them is of want.
func drawGraphs(t *testing.T, page, want string) {
	t.Helper()
	before := readFile(t, page)
	found := false
	after := graphOf.ReplaceAllStringFunc(before, func(block string) string {
		part := graphOf.FindStringSubmatch(block)
		found = found || part[2] == want
		d, err := workflow.ParseYAML(part[2], []byte(readFile(t, part[2])))
		if err != nil {
			t.Fatal(err)
		}
		drawn, err := d.Graph(workflow.GraphMermaid)
		if err != nil {
			t.Fatal(err)
		}
		return part[1] + drawn + part[4]
	})
	switch {
	case !found:
		t.Errorf("%s has no picture of %s: write the line <!-- graph of %s --> and a block ```mermaid", page, want, want)
	case after != before && *updateReference:
		if err := os.WriteFile(filepath.Join(repository, page), []byte(after), 0o644); err != nil {
			t.Fatal(err)
		}
	case after != before:
		t.Errorf("%s has another picture than its definition: go test ./cmd/waybill -run TestExamplePages -update", page)
	}
}
