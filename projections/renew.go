package projections

import (
	"cmp"
	"slices"
)

// The index keeps the rows of ended tasks whose ids are forgotten: it shows what was. If another task gets such an id, the
// row becomes that of the new task. The places of the earlier task's events stay, so that a past instant can be shown.

// renew begins the row of another task with the id of one that has ended.
func (r *taskRow) renew() {
	if r.stored && r.replaced == nil {
		was := *r.summary
		r.replaced = &was
	}
	r.summary = nil
}

// unindex removes the earlier task of a row from the index and the tally.
func (t *Timelines) unindex(w *indexWriter, r *taskRow) {
	was := r.replaced
	if was == nil {
		return
	}
	was.Version = r.indexed.version // that of the last Save
	at, none := cursorOf(was), indexState{}
	first, _ := posted(was)
	for _, f := range first {
		w.unposted.add(f, at)
	}
	if r.indexed.state.Terminal() {
		w.unposted.add(stateFacet(r.indexed.state), at)
	}
	w.writeOwn(&r.indexed, &none, at)
	w.writeEnd(r.indexed.ends, 0, at)
	if r.indexed.due != 0 {
		w.due = true
		w.remove(w.keys.appendDueKey(nil, r.indexed.due, at.Task))
	}
	t.rows.tally.move(was, &r.indexed, "")
	t.rows.tally.moveAgents(r.indexed.agents, nil)
	t.rows.steps.move(was, &r.indexed, nil)
	r.indexed, r.stored, r.replaced = indexState{}, false, nil
}

// splitPlaces separates the places of a task's events from those of earlier tasks with its id. from is the offset of its
// first event; 0: there were none.
func splitPlaces(places []Place, from int64) (earlier, own []Place) {
	if from == 0 {
		return nil, places
	}
	for _, p := range places {
		if p.Offset < from {
			earlier = append(earlier, p)
		} else {
			own = append(own, p)
		}
	}
	slices.SortFunc(earlier, func(a, b Place) int { return cmp.Compare(a.Offset, b.Offset) })
	return earlier, own
}
