//go:build synctests

package sim

import (
	"math/rand/v2"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// serviceCodes are the codes of the services' errors.
var serviceCodes = []string{"busy", "lost", "no_funds"}

// drawCodes draws a list of codes for retry.only, retry.except or catch.
func drawCodes(more *rand.Rand) []string {
	all := []string{"busy", "lost", "no_funds", refused, events.CodeExpired, events.CodeExpressionFailed, events.CodeRepeatExhausted}
	more.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+more.IntN(4)]
}

// drawFailures draws what the failures of a step mean.
func drawFailures(more *rand.Rand, s *workflow.Step) {
	switch more.IntN(6) {
	case 0:
		s.Catch = drawCodes(more)
	case 1:
		s.Catch = []string{"*"}
	case 2:
		s.Catch = []string{events.CodeTriesExhausted}
	}
	s.Pivot = more.IntN(8) == 0
	if s.StepKind() != events.CallStep {
		return
	}
	if more.IntN(3) == 0 {
		s.Retry = drawRetryCodes(more)
	}
	if s.Undo != nil && more.IntN(6) == 0 {
		s.Undo.Retry = drawRetryCodes(more)
	}
	if s.Repeat == nil && more.IntN(2) == 0 {
		s.Check = drawCheck(more)
	}
}

// drawRetryCodes draws a rule that takes all but its codes from the workflow's.
func drawRetryCodes(more *rand.Rand) *workflow.Retry {
	if more.IntN(2) == 0 {
		return &workflow.Retry{Only: drawCodes(more)}
	}
	return &workflow.Retry{Except: drawCodes(more)}
}

// failure returns an error with one of serviceCodes.
func (s *services) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &agent.Failure{Code: serviceCodes[s.codes.IntN(len(serviceCodes))], Message: "the service failed"}
}
