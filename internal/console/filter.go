package console

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/projections"
)

const (
	filterMaxBytes = 1024
	// filterLabelsMax bounds the labels of a filter: each needs a lookup.
	filterLabelsMax = 4
)

// filterTerms lists the terms of a filter.
const filterTerms = "id:PREFIX, state:STATE[,STATE...], workflow:NAME[/VERSION], label:KEY=VALUE, step_in_error:STEP, error_group:GROUP, parent:ID, agent:AGENT, " +
	"since:10m (or an instant), until:10m (or an instant), due_within:5m"

// parseFilter parses a filter: terms as in `state:error workflow:order/2 label:region="far east"`, which are
// combined by AND. Durations count back from now.
func parseFilter(text string, now time.Time) (projections.Filter, error) {
	var f projections.Filter
	if len(text) > filterMaxBytes {
		return f, fmt.Errorf("a filter has at most %d bytes", filterMaxBytes)
	}
	terms, err := splitTerms(text)
	if err != nil {
		return f, err
	}
	seen := map[string]bool{}
	for _, term := range terms {
		name, value, ok := strings.Cut(term, ":")
		if !ok || value == "" {
			return f, fmt.Errorf("%q is not a term; terms are %s", term, filterTerms)
		}
		if seen[name] && name != "label" {
			return f, fmt.Errorf("%s is given twice; several states are written as state:A,B", name)
		}
		seen[name] = true
		if err := addTerm(&f, name, value, now); err != nil {
			return f, err
		}
	}
	return f, nil
}

// splitTerms splits at spaces outside of double quotes, and removes the quotes. Within quotes a backslash escapes
// a quote or a backslash.
func splitTerms(text string) (terms []string, err error) {
	var term strings.Builder
	quoted, begun := false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			term.WriteByte(text[i])
		case c == '"':
			quoted, begun = !quoted, true
		case c < ' ' || c == 0x7f:
			return nil, fmt.Errorf("a filter has no control characters (%q)", c)
		case c == ' ' && !quoted:
			if begun {
				terms = append(terms, term.String())
			}
			term.Reset()
			begun = false
		default:
			term.WriteByte(c)
			begun = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quote (\") isn't closed")
	}
	if begun {
		terms = append(terms, term.String())
	}
	return terms, nil
}

func addTerm(f *projections.Filter, name, value string, now time.Time) (err error) {
	switch name {
	case "id":
		if err := events.CheckTaskID(value); err != nil {
			return fmt.Errorf("id:%s: must be the beginning of a task's id: %w", value, err)
		}
		f.IDPrefix = value
	case "state":
		for s := range strings.SplitSeq(value, ",") {
			if s == "held" { // as people call it
				s = string(events.StateError)
			}
			if !slices.Contains(events.TaskStates, events.TaskState(s)) {
				return fmt.Errorf("state:%s: must be one of %v", s, events.TaskStates)
			}
			if !slices.Contains(f.States, events.TaskState(s)) {
				f.States = append(f.States, events.TaskState(s))
			}
		}
	case "workflow":
		name, version, versioned := strings.Cut(value, "/")
		f.Workflow = name
		if versioned {
			if f.Version, err = strconv.Atoi(version); err != nil || f.Version < 1 || name == "" {
				return fmt.Errorf("workflow:%s: must be NAME or NAME/VERSION, with a version from 1", value)
			}
		}
	case "label":
		key, v, ok := strings.Cut(value, "=")
		if !ok || key == "" {
			return fmt.Errorf("label:%s: KEY=VALUE", value)
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		if old, twice := f.Labels[key]; twice && old != v {
			return fmt.Errorf("label:%s: a label has one value, but %q is asked for too", value, old)
		}
		if f.Labels[key] = v; len(f.Labels) > filterLabelsMax {
			return fmt.Errorf("at most %d labels in a filter", filterLabelsMax)
		}
	case "step_in_error":
		f.StepInError = value
	case "parent":
		if err := events.CheckTaskID(value); err != nil {
			return fmt.Errorf("parent:%s: must be a task's id: %w", value, err)
		}
		f.Parent = value
	case "error_group":
		f.ErrorGroup = value
	case "agent":
		f.Agent = value
	case "since":
		f.Since, err = parsePastTime(name, value, now)
	case "until":
		f.Until, err = parsePastTime(name, value, now)
	case "due_within":
		d, derr := time.ParseDuration(value)
		if derr != nil || d <= 0 {
			return fmt.Errorf("due_within:%s: must be a positive duration (5m)", value)
		}
		f.DueBefore = now.Add(d)
	default:
		return fmt.Errorf("unknown term %q; terms are %s", name, filterTerms)
	}
	return err
}

// parsePastTime parses a duration before now, or an instant.
func parsePastTime(name, value string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(value); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := events.ParseInstant(value)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s:%s: must be a duration back from now (10m), or an instant (2026-01-31T12:00:00Z)", name, consoleapi.Printable(value))
	}
	return t, nil
}
