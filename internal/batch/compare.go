package batch

import (
	"cmp"
	"slices"
)

// Difference is a task for which a batch did something else than its dry run had said.
type Difference struct {
	Task    string `json:"task"`
	Said    Status `json:"said"` // by the dry run; empty: it didn't have the task
	Did     Status `json:"did"`  // empty: the batch didn't have the task
	SaidWhy string `json:"said_why,omitempty"`
	DidWhy  string `json:"did_why,omitempty"`
}

// Compare returns the tasks for which a batch did something else than its dry run had said, ordered by id. A task that was
// accepted counts as accepted, whatever came of it later. A refusal has the same reason.
func Compare(dryRun, batch []Result) []Difference {
	differ := []Difference{}
	said := map[string]Result{}
	for _, r := range dryRun {
		said[r.Task] = r
	}
	for _, did := range batch {
		was := said[did.Task]
		delete(said, did.Task)
		if a, b := was.Status.answer(), did.Status.answer(); a != b || a == Refused && was.Why != did.Why {
			differ = append(differ, Difference{did.Task, was.Status, did.Status, was.Why, did.Why})
		}
	}
	for task, was := range said {
		differ = append(differ, Difference{Task: task, Said: was.Status, SaidWhy: was.Why})
	}
	slices.SortFunc(differ, func(a, b Difference) int { return cmp.Compare(a.Task, b.Task) })
	return differ
}

// answer returns what the scheduler answered; a status before it is returned as it is.
func (s Status) answer() Status {
	if s == Passed || s == Recurred {
		return Accepted
	}
	return s
}
