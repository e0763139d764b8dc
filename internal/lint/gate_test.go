package lint

import (
	"go/ast"
	"strings"
	"testing"
)

// pausers may pause or resume a client's fetches: the inbox gate's client, and a follower, which pauses
// its client for good and fetches by itself.
var pausers = []string{"internal/kafka/gate.go", "internal/kafka/follow.go"}

// gateFaults: two reasons that pause one inbox, and one that resumes it, leave the other unheeded.
func gateFaults(f *file) []string {
	for _, p := range pausers {
		if f.path == p {
			return nil
		}
	}
	if f.test {
		return nil
	}
	var faults []string
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && (strings.HasPrefix(s.Sel.Name, "PauseFetch") || strings.HasPrefix(s.Sel.Name, "ResumeFetch")) {
			faults = append(faults, fault(f.at(s), "%s ends or begins what another reason for a pause relies on. Pause and resume by a reason of internal/inboxgate.", s.Sel.Name))
		}
		return true
	})
	return faults
}

func TestOnlyTheGatePauses(t *testing.T) { eachFile(t, gateFaults) }
