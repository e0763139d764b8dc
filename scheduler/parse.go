package scheduler

import (
	"fmt"

	"github.com/waybill-run/waybill/workflow"
)

// ParseDefinition parses the definition in a file. It refuses one whose plan is too large: a scheduler would refuse each of
// its tasks.
func ParseDefinition(file string, src []byte) (*workflow.Definition, error) {
	d, err := workflow.ParseYAML(file, src)
	if err != nil {
		return nil, err
	}
	p, err := workflow.Compile(d)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if n := PlanOf(p).Bytes(); n > MaxPlanBytes {
		return nil, fmt.Errorf("%s: the plan of %s, which each of its tasks would hold, has %d bytes; at most %d (%d KiB): "+
			"give steps shorter names or fewer needs, or split the workflow", file, d.Key(), n, MaxPlanBytes, MaxPlanBytes>>10)
	}
	return d, nil
}
