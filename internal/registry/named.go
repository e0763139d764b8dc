package registry

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// Named is a definition without versions: a schedule or an intake. If its record can't be read, Fault says why.
type Named struct {
	events.NamedDefinition
	Fault string
}

// Result is what a change of a definition did.
type Result string

// The results.
const (
	Created   Result = "created"
	Changed   Result = "changed"
	Unchanged Result = "unchanged"
	Paused    Result = "paused"
	Resumed   Result = "resumed"
	Deleted   Result = "deleted"
)

// ListNamed returns the definitions of a kind in the log, ordered by name.
func ListNamed(ctx context.Context, admin *kafkaadmin.Admin, ns events.Namespace, kind events.DefinitionKind) ([]Named, error) {
	var all []events.Record
	err := admin.ReadCompacted(ctx, ns.Definitions(), func(r events.Record) error {
		if k, _, is := events.ParseNamedKey(string(r.Key)); is && k == kind {
			all = append(all, r)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the definitions: %w", err)
	}
	return NamedOf(all, kind), nil
}

// NamedOf returns the definitions of a kind as of the records of the topic, ordered by name.
func NamedOf(all []events.Record, kind events.DefinitionKind) (list []Named) {
	last := map[string]Named{}
	for i := range all {
		d, is, err := events.DecodeNamedDefinition(&all[i])
		switch {
		case !is || d.Kind != kind:
		case err != nil:
			last[d.Name] = Named{*d, err.Error()}
		case len(d.Body) == 0:
			delete(last, d.Name)
		default:
			last[d.Name] = Named{*d, ""}
		}
	}
	for _, d := range last {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b Named) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// FindNamed returns a definition of a list; nil: there is none with the name.
func FindNamed(list []Named, name string) *Named {
	i, found := slices.BinarySearchFunc(list, name, func(d Named, name string) int { return strings.Compare(d.Name, name) })
	if !found {
		return nil
	}
	return &list[i]
}

// ApplyNamed writes a definition unless the same one exists. A paused definition stays paused. sameRule reports whether
// the rule is the same in two bodies: then the definition holds since when it did (events.NamedDefinition.Since). nil: it
// never is.
func ApplyNamed(ctx context.Context, cfg kafka.Config, d events.NamedDefinition, sameRule func(a, b []byte) bool) (Result, error) {
	results, err := ApplyAllNamed(ctx, cfg, []events.NamedDefinition{d}, sameRule)
	if err != nil {
		return "", err
	}
	return results[0], nil
}

// ApplyAllNamed applies several definitions of a kind in one transaction: all or none. Their names differ.
func ApplyAllNamed(ctx context.Context, cfg kafka.Config, list []events.NamedDefinition, sameRule func(a, b []byte) bool) (results []Result, err error) {
	for i := range list {
		if err := events.CheckDefinitionName(list[i].Name); err != nil {
			return nil, err
		}
	}
	err = kafkaadmin.ChangeDefinitions(ctx, cfg, func(all []events.Record) (write []events.Record, err error) {
		old := NamedOf(all, list[0].Kind)
		results = nil
		for i := range list {
			change, result := planNamed(FindNamed(old, list[i].Name), list[i], sameRule)
			results = append(results, result)
			if change == nil {
				continue
			}
			r, err := change.Record(cfg.Namespace, string(cfg.Namespace)+string(change.Kind))
			if err != nil {
				return nil, err
			}
			write = append(write, r)
		}
		return write, nil
	})
	return results, err
}

// planNamed returns what to write so that d is the current definition; nil: nothing. old is the current one; nil: there is
// none.
func planNamed(old *Named, d events.NamedDefinition, sameRule func(a, b []byte) bool) (*events.NamedDefinition, Result) {
	switch {
	case old == nil:
		return &d, Created
	case old.Fault == "" && bytes.Equal(old.Body, d.Body):
		return nil, Unchanged
	}
	if d.Paused = old.Paused; old.Fault == "" && sameRule != nil && sameRule(old.Body, d.Body) {
		d.Since = old.Since
	}
	return &d, Changed
}

// PauseNamed pauses a definition.
func PauseNamed(ctx context.Context, cfg kafka.Config, kind events.DefinitionKind, name string, by events.By) (Result, error) {
	return changeNamed(ctx, cfg, kind, name, func(old *Named) (*events.NamedDefinition, Result, error) {
		switch {
		case old.Fault != "":
			return nil, "", fmt.Errorf("the %s %s can't be used: %s; apply it again, or delete it", kind, name, old.Fault)
		case old.Paused != nil:
			return nil, Unchanged, nil
		}
		change := old.NamedDefinition
		change.Paused, change.By = &by, by
		return &change, Paused, nil
	})
}

// ResumeNamed ends a pause.
func ResumeNamed(ctx context.Context, cfg kafka.Config, kind events.DefinitionKind, name string, by events.By) (Result, error) {
	return changeNamed(ctx, cfg, kind, name, func(old *Named) (*events.NamedDefinition, Result, error) {
		if old.Paused == nil {
			return nil, Unchanged, nil
		}
		return &events.NamedDefinition{Kind: kind, Name: name, Body: old.Body, By: by}, Resumed, nil
	})
}

// DeleteNamed writes a tombstone for a definition.
func DeleteNamed(ctx context.Context, cfg kafka.Config, kind events.DefinitionKind, name string, by events.By) (Result, error) {
	return changeNamed(ctx, cfg, kind, name, func(*Named) (*events.NamedDefinition, Result, error) {
		return &events.NamedDefinition{Kind: kind, Name: name, By: by}, Deleted, nil
	})
}

// changeNamed writes what decide makes of the current definition; nil: nothing. Its error is ErrNotFound if there is none.
func changeNamed(ctx context.Context, cfg kafka.Config, kind events.DefinitionKind, name string, decide func(old *Named) (*events.NamedDefinition, Result, error)) (result Result, err error) {
	err = kafkaadmin.ChangeDefinitions(ctx, cfg, func(all []events.Record) ([]events.Record, error) {
		old := FindNamed(NamedOf(all, kind), name)
		if old == nil {
			return nil, fmt.Errorf("%w: there is no %s %q", ErrNotFound, kind, name)
		}
		var change *events.NamedDefinition
		if change, result, err = decide(old); err != nil || change == nil {
			return nil, err
		}
		r, err := change.Record(cfg.Namespace, string(cfg.Namespace)+string(kind))
		return []events.Record{r}, err
	})
	return result, err
}
