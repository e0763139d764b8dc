package lint

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// pureNames are the files that decide and do nothing else.
var pureNames = []string{"decide.go", "plan.go", "attempt.go", "start.go", "flow_control.go", "run_queue.go", "agent_health.go", "congestion.go"}

// impureCalls are what a pure file may not call, by package; empty: nothing of
// the package at all.
var impureCalls = map[string][]string{
	"time":         {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"math/rand":    nil,
	"math/rand/v2": nil,
	"crypto/rand":  nil,
	"os":           nil,
	"os/exec":      nil,
	"os/signal":    nil,
	"net":          nil,
	"net/http":     nil,
	"io":           nil,
	"io/ioutil":    nil,
	"bufio":        nil,
	"log":          nil,
	"log/slog":     nil,
	"syscall":      nil,
	"fmt":          {"Print", "Println", "Printf", "Fprint", "Fprintln", "Fprintf", "Scan", "Scanln", "Scanf"},
}

// pure reports whether a file must be: the vocabulary, the files named for it,
// and those that hold an Apply.
func pure(f *file) bool {
	if f.test {
		return false
	}
	return f.pkg == "events" || slices.Contains(pureNames, path.Base(f.path)) && within(f.pkg, roles...) || holdsApply(f)
}

func holdsApply(f *file) bool {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "Apply" && fn.Recv != nil {
			return true
		}
	}
	return false
}

const pureWhy = "%s in a pure file: the same input must give the same decision, in a replay too. Time, chance and I/O belong to the shell (run.go); take them as arguments."

func pureFaults(f *file) []string {
	if !pure(f) {
		return nil
	}
	var faults []string
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			faults = append(faults, fault(f.at(n), pureWhy, "a go statement"))
		case *ast.SelectStmt, *ast.SendStmt:
			faults = append(faults, fault(f.at(n), pureWhy, "a channel's operation"))
		case *ast.SelectorExpr:
			name, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			p := importOf(f, name.Name)
			forbidden, listed := impureCalls[p]
			if listed && p != "" && (forbidden == nil || slices.Contains(forbidden, n.Sel.Name)) && !interfaceOnly(p, n.Sel.Name) {
				faults = append(faults, fault(f.at(n), pureWhy, p+"."+n.Sel.Name))
			}
		case *ast.ImportSpec:
			if n.Name != nil && n.Name.Name == "." {
				faults = append(faults, fault(f.at(n), "a dot import in a pure file hides what it calls; name the package."))
			}
		}
		return true
	})
	return faults
}

// interfaceOnly: names that say nothing is done: errors and interfaces.
func interfaceOnly(p, name string) bool {
	return strings.HasPrefix(name, "Err") || p == "io" && (name == "EOF" || strings.HasSuffix(name, "er") || name == "Discard")
}

// TestPure holds the pure files.
func TestPure(t *testing.T) {
	eachFile(t, pureFaults)
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"events/evolve.go", "scheduler/decide.go", "scheduler/plan.go", "supervisor/decide.go", "agent/attempt.go"} {
		if i := slices.IndexFunc(files, func(f *file) bool { return f.path == name }); i < 0 || !pure(files[i]) {
			t.Errorf("%s isn't among the pure files: if it moved, say so in internal/lint/pure_test.go", name)
		}
	}
}
