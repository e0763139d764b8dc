package lint

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
)

// pureFiles matches the pure files that .golangci.yml names. forbidigo checks their calls, and this file what
// forbidigo can't check: go statements and channels.
var pureFiles = sync.OnceValues(func() (*regexp.Regexp, error) {
	src, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		return nil, err
	}
	found := regexp.MustCompile(`path-except: (\S+)\n\s+text: "pure:"`).FindSubmatch(src)
	if found == nil {
		return nil, os.ErrNotExist
	}
	return regexp.Compile(string(found[1]))
})

const pureWhy = "%s in a pure file: the same input must give the same decision, in a replay too. Time, chance and I/O belong to the shell (run.go); take them as arguments."

func pureFaults(f *file) []string {
	pure, err := pureFiles()
	if err != nil {
		return []string{fault(".golangci.yml", "names no pure files: %v", err)}
	}
	if f.test {
		return nil
	}
	if !pure.MatchString(f.path) {
		if fn := applies(f); fn != nil {
			return []string{fault(f.at(fn), "an Apply must be pure: name the file among the pure ones in .golangci.yml.")}
		}
		return nil
	}
	var faults []string
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			faults = append(faults, fault(f.at(n), pureWhy, "a go statement"))
		case *ast.SelectStmt, *ast.SendStmt:
			faults = append(faults, fault(f.at(n), pureWhy, "a channel's operation"))
		}
		return true
	})
	return faults
}

// applies returns the Apply method that requires a file to be pure.
func applies(f *file) *ast.FuncDecl {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "Apply" && fn.Recv != nil {
			return fn
		}
	}
	return nil
}

// TestPure checks the pure files.
func TestPure(t *testing.T) {
	eachFile(t, pureFaults)
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	pure, err := pureFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"events/evolve.go", "scheduler/decide.go", "scheduler/plan.go", "supervisor/decide.go", "agent/attempt.go"} {
		if !slices.ContainsFunc(files, func(f *file) bool { return f.path == name }) || !pure.MatchString(name) {
			t.Errorf("%s isn't among the pure files: if it moved, say so in .golangci.yml", name)
		}
	}
}
