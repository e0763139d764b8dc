package lint

import (
	"go/ast"
	"testing"
)

// timed are the folders whose code counts time: the roles, and what they run on.
var timed = append([]string{"internal/kafka", "internal/instance", "internal/console", "projections", "cmd"}, roles...)

// wallFaults: the clock of a machine is set, an hour ahead or back. What a time.Time counts from
// another goes by its monotonic reading, which a number of nanoseconds has lost.
func wallFaults(f *file) []string {
	if f.test || f.pkg != "" && !within(f.pkg, timed...) {
		return nil
	}
	var faults []string
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "UnixNano" {
			faults = append(faults, fault(f.at(s), "UnixNano keeps an instant by the wall's clock, and whoever sets that sets what is counted from it. Keep the time.Time, or the time since one."))
		}
		return true
	})
	return faults
}

func TestNothingIsCountedByTheWall(t *testing.T) { eachFile(t, wallFaults) }
