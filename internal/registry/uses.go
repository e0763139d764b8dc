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

// Deprecated says which uses name a deprecated version, or name none while all versions are deprecated.
func Deprecated(uses []Use, list []Definition) (notes []string) {
	for _, u := range uses {
		var why string // of the last version that is deprecated
		all := true
		for i := range list {
			d := &list[i]
			switch {
			case d.Workflow != u.Name || u.Version != 0 && d.Version != u.Version || d.Deleted:
			case d.Deprecated == nil:
				all = false
			default:
				why = d.Deprecated.Why
			}
		}
		switch {
		case why == "" || !all:
		case u.Version != 0:
			notes = append(notes, fmt.Sprintf("%s names %s, which is deprecated: %s", u.By, events.DefinitionKey(u.Name, u.Version), why))
		default:
			notes = append(notes, fmt.Sprintf("%s names %s, all of whose versions are deprecated: its tasks are refused", u.By, u.Name))
		}
	}
	return notes
}

// Missing says which uses name a workflow, or a version, that isn't applied or was deleted.
func Missing(uses []Use, list []Definition) (notes []string) {
	for _, u := range uses {
		applied := slices.ContainsFunc(list, func(d Definition) bool {
			return d.Workflow == u.Name && (u.Version == 0 || d.Version == u.Version) && !d.Deleted
		})
		if applied {
			continue
		}
		name := u.Name
		if u.Version != 0 {
			name = events.DefinitionKey(u.Name, u.Version)
		}
		notes = append(notes, fmt.Sprintf("%s names %s, which isn't applied: its tasks are refused", u.By, name))
	}
	return notes
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
		if u, is := UseOf(&list[i].NamedDefinition); is {
			uses = append(uses, u)
		}
	}
	return uses
}

// UseOf returns the use of a workflow by a schedule or an intake. false: it starts no tasks, or can't be read.
func UseOf(d *events.NamedDefinition) (Use, bool) {
	var body struct {
		Submit struct {
			Workflow string `json:"workflow"`
			Version  int    `json:"version"`
		} `json:"submit"`
	}
	err := json.Unmarshal(d.Body, &body)
	return Use{fmt.Sprintf("%s %s", d.Kind, d.Name), body.Submit.Workflow, body.Submit.Version}, err == nil && body.Submit.Workflow != ""
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
