package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
)

var (
	namePattern      = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	operationPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,62}$`)
)

const (
	nameFix      = "write a lower-case letter, then up to 62 of a-z, 0-9, _ and -"
	operationFix = "write a letter, then up to 62 letters, digits, dots, _ and -"
)

// Validate checks everything, including the expressions, and returns Errors with all faults. Definitions that ParseYAML
// and Builder.Build return are valid.
func (d *Definition) Validate() error {
	_, err := Compile(d)
	return err
}

// check reports every fault of a normalized definition.
func check(d *Definition, f *faults) *Program {
	checkStructure(d, f)
	return compile(d, f)
}

// checkStructure reports every fault except those of expressions.
func checkStructure(d *Definition, f *faults) {
	checkName(f, "workflow", d.Name)
	if d.Version < 1 || d.Version > MaxVersion {
		f.missing("version", d.Version == 0, fmt.Sprintf("%d is out of range", d.Version), fmt.Sprintf("write a whole number from 1 to %d", MaxVersion))
	}
	checkDuration(f, "complete_within", d.CompleteWithin, true)
	if d.OnError != OnErrorUndo && d.OnError != OnErrorHold {
		f.add("on_error", fmt.Sprintf("%q is neither undo nor hold", d.OnError), suggest(d.OnError, []string{OnErrorUndo, OnErrorHold}))
	}
	checkDuration(f, "dedupe_for", d.DedupeFor, false)
	checkDuration(f, "defaults.complete_within", d.Defaults.CompleteWithin, false)
	d.checkFits(f, "defaults.complete_within", d.Defaults.CompleteWithin)
	checkRetry(f, "defaults.retry", d.Defaults.Retry)
	checkLabels(f, d.Labels)
	switch n := len(d.Steps); {
	case n == 0:
		f.missing("steps", true, "", "write at least one step")
	case n > MaxSteps:
		f.add("steps", fmt.Sprintf("%d steps, the limit is %d", n, MaxSteps), "split the workflow")
		return // the checks below are for at most MaxSteps
	}
	seen := map[string]bool{}
	for i := range d.Steps {
		s := &d.Steps[i]
		if seen[s.ID] {
			f.add(stepPath(s.ID), "two steps have this id", "rename one of them")
		}
		seen[s.ID] = true
		d.checkStep(f, s)
	}
	d.checkNeeds(f)
}

// missing reports a field that is absent or has an invalid value, unless decoding it already found a fault.
func (f *faults) missing(path string, absent bool, what, fix string) {
	if f.reported(path) || f.isUnusable(path) {
		return
	}
	if absent {
		what = "missing"
	}
	f.add(path, what, fix)
}

// isUnusable reports whether the value at the path, or a value that contains it, was refused as a whole. No field
// within such a value is reported as missing.
func (f *faults) isUnusable(path string) bool {
	for {
		if f.unusable[path] {
			return true
		}
		if path == "" {
			return false
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// reported reports whether the list has a fault with exactly this path.
func (f *faults) reported(path string) bool {
	return slices.ContainsFunc(f.list, func(e *Error) bool { return e.Path == path })
}

func checkName(f *faults, path, name string) {
	if !namePattern.MatchString(name) {
		f.missing(path, name == "", fmt.Sprintf("%q is not a name", name), nameFix)
	}
}

func checkOperation(f *faults, path, name string) {
	if !operationPattern.MatchString(name) {
		f.missing(path, name == "", fmt.Sprintf("%q is not the name of an operation", name), operationFix)
	}
}

func checkDuration(f *faults, path string, v Duration, required bool) {
	switch {
	case v == 0 && required:
		f.missing(path, true, "", "write a duration such as 30m")
	case v != 0 && (v < MinDuration || v > MaxDuration):
		f.missing(path, false, v.String()+" is out of range", fmt.Sprintf("write a duration from %s to %s", MinDuration, MaxDuration))
	}
}

// checkFits reports a deadline of an attempt that is longer than the task's.
func (d *Definition) checkFits(f *faults, path string, within Duration) {
	if d.CompleteWithin > 0 && within > d.CompleteWithin {
		f.add(path, fmt.Sprintf("an attempt may take %s, longer than the whole task with %s", within, d.CompleteWithin),
			"shorten it, or lengthen the task's complete_within")
	}
}

func (d *Definition) checkStep(f *faults, s *Step) {
	path := stepPath(s.ID)
	if !namePattern.MatchString(s.ID) {
		f.add(path, fmt.Sprintf("%q is not a step id", s.ID), nameFix)
	}
	k := f.kindOf(s, path)
	k.check(f, d, s, path)
	k.checkShared(f, s, path)
	checkVersion(f, k, s, path)
	checkRetry(f, path+".retry", s.Retry)
	checkCatch(f, path+".catch", s.Catch)
	checkEach(f, s, path)
	checkRepeat(f, d, s.Repeat, path+".repeat")
	checkCheck(f, d, s, path+".check")
	if u := s.Undo; u != nil {
		path += ".undo"
		checkOperation(f, path+".operation", u.Operation)
		if u.Agent != s.Agent { // otherwise the check of the step reports it
			checkName(f, path+".agent", u.Agent)
		}
		if u.CompleteWithin != nil {
			checkDuration(f, path+".complete_within", *u.CompleteWithin, true)
		}
		if u.Heartbeat != nil {
			within, _ := d.EffectiveUndo(d.Index(s.ID))
			checkHeartbeat(f, path, *u.Heartbeat, Duration(within))
		}
		checkRetry(f, path+".retry", u.Retry)
	}
}

func checkRetry(f *faults, path string, r *Retry) {
	if r == nil {
		return
	}
	if r.MaxAttempts < 0 || r.MaxAttempts > MaxAttempts {
		f.add(path+".max_attempts", fmt.Sprintf("%d is out of range", r.MaxAttempts), fmt.Sprintf("write a whole number from 1 to %d", MaxAttempts))
	}
	if r.Factor != 0 && !(r.Factor >= 1 && r.Factor <= MaxFactor) {
		f.add(path+".factor", fmt.Sprintf("%v is out of range", r.Factor), fmt.Sprintf("write a number from 1 to %d", MaxFactor))
	}
	checkRetryCodes(f, path, r)
	checkDuration(f, path+".backoff", r.Backoff, false)
	checkDuration(f, path+".max", r.Max, false)
	checkDuration(f, path+".cool_down", r.CoolDown, false)
	if r.Max != 0 && r.Backoff > r.Max {
		f.add(path+".max", fmt.Sprintf("the longest wait, %s, is shorter than the first one, %s", r.Max, r.Backoff), "raise max or lower backoff")
	}
}

// checkNeeds reports unknown and repeated needs, and each cycle with its path.
func (d *Definition) checkNeeds(f *faults) {
	ids := make([]string, len(d.Steps))
	at := make(map[string]int, len(d.Steps))
	for i := range d.Steps {
		ids[i] = d.Steps[i].ID
		at[ids[i]] = i
	}
	for i := range d.Steps {
		s := &d.Steps[i]
		path := stepPath(s.ID) + ".needs"
		if len(s.Needs) > MaxNeeds {
			f.add(path, fmt.Sprintf("%d needs, the limit is %d", len(s.Needs), MaxNeeds), "combine them with steps in between")
		}
		seen := map[string]bool{}
		for n, id := range s.Needs {
			if _, ok := at[id]; !ok {
				f.add(indexPath(path, n), fmt.Sprintf("no step has the id %q", id), suggest(id, ids))
			}
			if seen[id] {
				f.add(indexPath(path, n), id+" is given twice", "remove one of them")
			}
			seen[id] = true
		}
	}
	c := cycles{d: d, f: f, at: at, state: make([]visit, len(d.Steps))}
	for i := range d.Steps {
		c.visit(i)
	}
}

// cycles finds cycles by a depth-first search. An edge to a step on the current path closes a cycle.
type cycles struct {
	d     *Definition
	f     *faults
	at    map[string]int
	state []visit
	walk  []string
}

type visit uint8

const (
	notVisited visit = iota
	onWalk
	visited
)

func (c *cycles) visit(i int) {
	if c.state[i] != notVisited {
		return
	}
	c.state[i] = onWalk
	id := c.d.Steps[i].ID
	c.walk = append(c.walk, id)
	for n, need := range c.d.Steps[i].Needs {
		j, ok := c.at[need]
		if !ok || slices.Index(c.d.Steps[i].Needs, need) < n {
			continue
		}
		if c.state[j] == onWalk {
			cycle := append(slices.Clone(c.walk[slices.Index(c.walk, need):]), need)
			c.f.add(indexPath(stepPath(id)+".needs", n), "a cycle: "+strings.Join(cycle, " needs "), "remove one of these needs")
			continue
		}
		c.visit(j)
	}
	c.walk = c.walk[:len(c.walk)-1]
	c.state[i] = visited
}

// ancestors returns for each step the set of steps that it needs, directly or through others. The sets of steps in a
// cycle may be incomplete; that doesn't matter, because a cycle is a fault.
func (d *Definition) ancestors() []bits {
	at := make(map[string]int, len(d.Steps))
	for i := range d.Steps {
		at[d.Steps[i].ID] = i
	}
	sets := make([]bits, len(d.Steps))
	var visit func(i int) bits
	visit = func(i int) bits {
		if sets[i] != nil {
			return sets[i]
		}
		set := make(bits, (len(d.Steps)+63)/64)
		sets[i] = set
		for _, id := range d.Steps[i].Needs {
			if j, ok := at[id]; ok {
				set.add(j)
				set.union(visit(j))
			}
		}
		return set
	}
	for i := range d.Steps {
		visit(i)
	}
	return sets
}

// bits is a set of small integers.
type bits []uint64

func (b bits) add(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bits) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bits) union(o bits) {
	for i := range b {
		b[i] |= o[i]
	}
}

// normalTree converts a value to the types of Definition.Output. Values of other Go types are converted through their
// JSON.
func normalTree(v any, path string, f *faults) any {
	switch v.(type) {
	case nil, bool, json.Number, string, []any, map[string]any:
	default:
		var plain any
		text, err := events.EncodeJSON(v)
		if err == nil {
			dec := json.NewDecoder(bytes.NewReader(text))
			dec.UseNumber()
			err = dec.Decode(&plain)
		}
		if err != nil {
			f.add(path, fmt.Sprintf("a Go value of type %T has no JSON form: %v", v, err), "give maps, slices, strings, numbers and booleans")
			return nil
		}
		v = plain
	}
	return normalPlain(v, path, f, 0)
}

func normalPlain(v any, path string, f *faults, depth int) any {
	if depth > MaxDepth {
		f.missing(path, false, fmt.Sprintf("nested more than %d deep", MaxDepth), "flatten it")
		return nil
	}
	switch v := v.(type) {
	case nil, bool:
		return v
	case json.Number:
		if !isNumber(string(v)) {
			f.add(path, fmt.Sprintf("%q is not a JSON number", string(v)), "")
			return nil
		}
		return v
	case string:
		if !utf8.ValidString(v) {
			f.add(path, "the text is not UTF-8", "")
			return nil
		}
		return v
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = normalPlain(e, indexPath(path, i), f, depth+1)
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for k, e := range v {
			object[k] = normalPlain(e, memberPath(path, k), f, depth+1)
		}
		return object
	}
	return normalTree(v, path, f)
}
