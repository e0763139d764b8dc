package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// Use is a definition that starts tasks of a workflow.
type Use struct {
	By      string // such as "schedule nightly"
	Name    string // of the workflow
	Version int    // 0: the newest
}

// Uses returns the uses of workflows in the log by schedules, intakes, and steps of workflows.
func Uses(ctx context.Context, admin *kafkaadmin.Admin, ns events.Namespace, list []Definition) ([]Use, error) {
	uses := usesOfSteps(list)
	for _, kind := range []events.DefinitionKind{events.ScheduleDefinition, events.IntakeDefinition} {
		named, err := ListNamed(ctx, admin, ns, kind)
		if err != nil {
			return nil, err
		}
		uses = append(uses, usesOfNamed(named)...)
	}
	return uses, nil
}

func usesOfSteps(list []Definition) (uses []Use) {
	for i := range list {
		d := list[i].Definition
		if d == nil || list[i].Deleted {
			continue
		}
		for j := range d.Steps {
			if s := &d.Steps[j]; s.Workflow != "" {
				uses = append(uses, Use{fmt.Sprintf("step %s of %s", s.ID, d.Key()), s.Workflow, s.Version})
			}
		}
	}
	return uses
}

func usesOfNamed(list []Named) (uses []Use) {
	for i := range list {
		var body struct {
			Submit struct {
				Workflow string `json:"workflow"`
				Version  int    `json:"version"`
			} `json:"submit"`
		}
		if err := json.Unmarshal(list[i].Body, &body); err == nil && body.Submit.Workflow != "" {
			uses = append(uses, Use{fmt.Sprintf("%s %s", list[i].Kind, list[i].Name), body.Submit.Workflow, body.Submit.Version})
		}
	}
	return uses
}

// UsersOf returns who starts tasks of a version: those that name it, and those that name none, if it is the last version
// of its workflow that they can get.
func UsersOf(uses []Use, list []Definition, name string, version int) (users []string) {
	last := !slices.ContainsFunc(list, func(d Definition) bool {
		return d.Workflow == name && d.Definition != nil && !d.Deleted && (d.Version == version) == (d.Deprecated != nil)
	})
	own := fmt.Sprintf(" of %s", events.DefinitionKey(name, version))
	for _, u := range uses {
		if u.Name != name || u.Version != version && (u.Version != 0 || !last) || len(u.By) > len(own) && u.By[len(u.By)-len(own):] == own {
			continue
		}
		users = append(users, u.By)
	}
	return users
}
