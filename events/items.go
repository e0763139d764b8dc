package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// The bounds of a step that runs for each item of a list.
const (
	MaxItems       = 10_000
	MaxItemsAtOnce = 1000
)

// Items are the items of a step that runs for each item of a list. Each item is a child task, so the task's own state has
// only what its decisions need: where each item is, and its output until all have ended. Clones of a task share chunks of
// items until one changes (Step.ownItem), so the cost of an event doesn't grow with the number of items.
type Items struct {
	// At is the place of the list in the task's input, as a JSON Pointer in a fragment ("#/items"); empty: List is stored
	// with the step.
	At    string
	List  json.RawMessage
	Count int
	// Next is the lowest item that never started. Items below it may be pending too, after a resubmit.
	Next int
	// Attempts are the step's attempts that started items, with the tokens of their items' replies. UndoToken is that of
	// the last attempt to undo them. The events of the items' tasks have these tokens too.
	Attempts  []ItemsAttempt
	UndoToken string
	// The numbers of items in each state. Held counts the running and undoing ones whose task is held.
	Running, Completed, Failed, Undoing, Undone, Held int
	// UndoRejected are the items whose undo was rejected since the undo's last attempt began, in the order of the events.
	UndoRejected []int
	// KeepsCompleted is true if the step's undo leaves completed items as they are.
	KeepsCompleted bool

	outputBytes int // of outputs and errors, as in the list of outputs
	groups      []*itemGroup
	edition     uint64
	// Derived, never changed in place.
	starts, ends []int32 // of each item in List
	again        []int32 // pending items below Next, ascending
	byEnd        []int32 // once the undo has begun: the items that had completed, the last first
}

// ItemsAttempt is an attempt of a step that started items.
type ItemsAttempt struct {
	Attempt int
	Token   string
}

// Item is the state of one item. Its task has everything else.
type Item struct {
	// State is pending, running, completed, error, undoing or undone. The task of an item in error was undone, or was never
	// started.
	State StepState
	// Attempt is the attempt of the step that started the item; 0: none has.
	Attempt int
	// Seq is the seq of the event that ended the item; 0: it hasn't ended.
	Seq    uint64
	Output json.RawMessage // dropped when the step is completed
	// Error is why the item is in error, or why the task of a running or undoing item is held.
	Error *Error
}

// storedItem is an Item in memory: it is copied with its chunk, so it is small.
type storedItem struct {
	output  json.RawMessage
	err     *Error
	seq     uint64
	attempt int32
	state   uint8 // index of itemStates
}

func (x *storedItem) item() Item {
	return Item{itemStates[x.state].name, int(x.attempt), x.seq, x.output, x.err}
}

func (x *Item) stored() storedItem {
	for i := range itemStates {
		if itemStates[i].name == x.State {
			return storedItem{x.Output, x.Error, x.Seq, int32(x.Attempt), uint8(i)}
		}
	}
	panic("an item can't be " + string(x.State))
}

// A change of one item copies its chunk, the list of chunks of its group, and the list of groups: about 2 KB, in a task of
// 10 items as in one of MaxItems.
const (
	itemsPerChunk  = 32
	chunksPerGroup = 32
	itemsPerGroup  = itemsPerChunk * chunksPerGroup
)

type itemChunk struct {
	edition uint64
	items   [itemsPerChunk]storedItem
}

type itemGroup struct {
	edition uint64
	chunks  [chunksPerGroup]*itemChunk
}

// newItemGroups makes n pending items.
func newItemGroups(n int) []*itemGroup {
	groups := make([]*itemGroup, (n+itemsPerGroup-1)/itemsPerGroup)
	for i := range groups {
		groups[i] = &itemGroup{}
	}
	for i := 0; i < n; i += itemsPerChunk {
		groups[i/itemsPerGroup].chunks[i%itemsPerGroup/itemsPerChunk] = &itemChunk{}
	}
	return groups
}

func newItems(at string, list json.RawMessage) (*Items, error) {
	it := &Items{At: at, List: list}
	if err := it.index(); err != nil {
		return nil, err
	}
	it.Count = len(it.starts)
	it.groups = newItemGroups(it.Count)
	return it, nil
}

// index finds the items in the list.
func (it *Items) index() error {
	list := jsonscan.TrimSpace(it.List)
	it.List = list
	if len(list) == 0 || list[0] != '[' {
		return errors.New("the items aren't a list")
	}
	it.starts, it.ends = nil, nil
	_, err := jsonscan.EachElement(list, 0, 0, func(el []byte) error {
		if len(it.starts) == MaxItems {
			return fmt.Errorf("more than %d items", MaxItems)
		}
		start := cap(list) - cap(el) // el is a part of list
		it.starts, it.ends = append(it.starts, int32(start)), append(it.ends, int32(start+len(el)))
		return nil
	})
	return err
}

// Item returns the state of an item.
func (it *Items) Item(i int) Item { return it.stored(i).item() }

func (it *Items) stored(i int) *storedItem {
	return &it.groups[i/itemsPerGroup].chunks[i%itemsPerGroup/itemsPerChunk].items[i%itemsPerChunk]
}

// Value returns the JSON of an item. It aliases the list.
func (it *Items) Value(i int) json.RawMessage { return it.List[it.starts[i]:it.ends[i]] }

// Ended returns the number of items that have completed or failed.
func (it *Items) Ended() int { return it.Completed + it.Failed }

// OutputBytes returns the size of the list of outputs, as far as it is known.
func (it *Items) OutputBytes() int { return it.outputBytes + it.Count + len("[]") }

// NextPending returns the first item that may be started; false: none is left.
func (it *Items) NextPending() (int, bool) {
	if len(it.again) > 0 {
		return int(it.again[0]), true
	}
	return it.Next, it.Next < it.Count
}

// NextUndo returns up to n items to withdraw next, in their order: those whose tasks haven't ended, the last first, then
// completed ones in reverse order of completion. first is true in the first decision of an undo.
func (it *Items) NextUndo(n int, first bool) []int {
	var next []int
	if first {
		for i := it.Next - 1; i >= 0 && len(next) < it.Running+it.Undoing; i-- {
			if s := it.Item(i).State; s == StepRunning || s == StepUndoing {
				next = append(next, i)
			}
		}
		n -= len(next)
	}
	if it.KeepsCompleted {
		return next
	}
	for _, i := range it.byEnd {
		if n <= 0 {
			break
		}
		if it.Item(int(i)).State == StepCompleted {
			next = append(next, int(i))
			n--
		}
	}
	return next
}

// Token returns the token of an attempt that started items; empty: none did.
func (it *Items) Token(attempt int) string {
	for _, a := range it.Attempts {
		if a.Attempt == attempt {
			return a.Token
		}
	}
	return ""
}

// bytes returns the size of the JSON that the items hold.
func (it *Items) bytes() int {
	if it == nil {
		return 0
	}
	n := it.outputBytes
	if it.At == "" {
		n += len(it.List)
	}
	return n
}

// NeedsInput reports whether the fold of later events needs the task's input: the list of a step's items may be in it.
func (t *Task) NeedsInput() bool {
	for i := range t.Plan.Steps {
		if t.Plan.Steps[i].StepKind == ItemsStep && t.Steps[i].Items == nil {
			return true
		}
	}
	return false
}

// ownItems returns items that may be changed.
func (s *Step) ownItems() *Items {
	if s.Items.edition != s.edition {
		own := *s.Items
		own.edition = s.edition
		own.groups = slices.Clone(own.groups)
		own.Attempts = slices.Clip(own.Attempts)
		own.UndoRejected = slices.Clip(own.UndoRejected)
		s.Items = &own
	}
	return s.Items
}

// ownItem returns an item that may be changed. s must belong to its task (Task.OwnStep).
func (s *Step) ownItem(i int) *storedItem {
	g := &s.ownItems().groups[i/itemsPerGroup]
	if (*g).edition != s.edition {
		own := **g
		own.edition, *g = s.edition, &own
	}
	c := &(*g).chunks[i%itemsPerGroup/itemsPerChunk]
	if (*c).edition != s.edition {
		own := **c
		own.edition, *c = s.edition, &own
	}
	return &(*c).items[i%itemsPerChunk]
}

// count adds n to the number of items in a state.
func (it *Items) count(s StepState, n int) {
	switch s {
	case StepRunning:
		it.Running += n
	case StepCompleted:
		it.Completed += n
	case StepError:
		it.Failed += n
	case StepUndoing:
		it.Undoing += n
	case StepUndone:
		it.Undone += n
	default: // pending
	}
}

// setItem changes an item, and counts it.
func (s *Step) setItem(i int, change func(*Item)) {
	it, own := s.ownItems(), s.ownItem(i)
	item := own.item()
	it.count(item.State, -1)
	it.outputBytes -= item.outputBytes()
	if item.held() {
		it.Held--
	}
	change(&item)
	*own = item.stored()
	it.count(item.State, 1)
	it.outputBytes += item.outputBytes()
	if item.held() {
		it.Held++
	} else if slices.Contains(it.UndoRejected, i) {
		it.UndoRejected = slices.DeleteFunc(slices.Clone(it.UndoRejected), func(n int) bool { return n == i })
	}
}

func (x *Item) held() bool {
	return x.Error != nil && (x.State == StepRunning || x.State == StepUndoing)
}

// output returns the outputs in the order of the items. An item in error has {"error": ...}.
func (it *Items) output() json.RawMessage {
	b := append(make([]byte, 0, it.OutputBytes()), '[')
	for i := range it.Count {
		if i > 0 {
			b = append(b, ',')
		}
		item := it.Item(i)
		b = item.appendOutput(b)
	}
	return append(b, ']')
}

func (x *Item) appendOutput(b []byte) []byte {
	if x.Error != nil {
		return append(appendObject(append(b, `{"error":`...), x.Error), '}')
	}
	return append(b, orNull(x.Output)...)
}

func (x *Item) outputBytes() int {
	if x.Error != nil {
		return len(x.appendOutput(nil))
	}
	return len(x.Output)
}

// deriveOrder sets the derived lists.
func (it *Items) deriveOrder(undoes bool) {
	it.again, it.byEnd = nil, nil
	for i := range it.Next {
		if it.Item(i).State == StepPending {
			it.again = append(it.again, int32(i))
		}
	}
	if !undoes || it.KeepsCompleted {
		return
	}
	for i := range it.Next {
		if it.Item(i).State == StepCompleted {
			it.byEnd = append(it.byEnd, int32(i))
		}
	}
	slices.SortFunc(it.byEnd, func(a, b int32) int {
		if it.Item(int(a)).Seq > it.Item(int(b)).Seq {
			return -1
		}
		return 1
	})
}

// ItemInput returns the input of an item's task: {"index", "input", "item"}.
func ItemInput(index int, input, item json.RawMessage) json.RawMessage {
	b := strconv.AppendInt(append(make([]byte, 0, len(input)+len(item)+40), `{"index":`...), int64(index), 10)
	b = append(append(b, `,"input":`...), input...)
	return append(append(append(b, `,"item":`...), item...), '}')
}

// ItemOfInput returns the item and its index from the input of an item's task.
func ItemOfInput(input json.RawMessage) (item json.RawMessage, index int) {
	_, _ = jsonscan.EachMember(input, 0, 0, func(m jsonscan.Member) {
		switch string(m.Name) {
		case `"item"`, "item":
			item = m.Value
		case `"index"`, "index":
			index, _ = strconv.Atoi(string(m.Value))
		}
	})
	return item, index
}

// atPointer returns the value at a JSON Pointer in a fragment.
func atPointer(doc json.RawMessage, at string) (json.RawMessage, error) {
	rest, ok := strings.CutPrefix(at, "#")
	if !ok || rest != "" && rest[0] != '/' {
		return nil, fmt.Errorf("%q is no JSON Pointer in a fragment", at)
	}
	doc = jsonscan.TrimSpace(doc)
	for rest != "" {
		var token string
		token, rest, _ = strings.Cut(rest[1:], "/")
		if rest != "" {
			rest = "/" + rest
		}
		var found json.RawMessage
		name := strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		n, err := strconv.Atoi(name)
		switch {
		case len(doc) == 0:
		case doc[0] == '{':
			_, _ = jsonscan.EachMember(doc, 0, 0, func(m jsonscan.Member) {
				if found == nil && jsonscan.Unquote(m.Name) == name {
					found = m.Value
				}
			})
		case doc[0] == '[' && err == nil:
			i := 0
			_, _ = jsonscan.EachElement(doc, 0, 0, func(el []byte) error {
				if i == n {
					found = el
				}
				i++
				return nil
			})
		}
		if found == nil {
			return nil, fmt.Errorf("the task's input has nothing at %q", at)
		}
		doc = found
	}
	return doc, nil
}

// ListAt returns the list of a step's items from the task's input.
func ListAt(input json.RawMessage, at string) (json.RawMessage, error) { return atPointer(input, at) }

// CountItems returns the number of elements of a JSON list.
func CountItems(list json.RawMessage) (n int, err error) {
	_, err = jsonscan.EachElement(list, jsonscan.SkipSpace(list, 0), 0, func([]byte) error { n++; return nil })
	return n, err
}

func (it *Items) fields(c *codec) {
	c.str("items_at", &it.At)
	if c.decoding || it.At == "" {
		c.raw("list", &it.List)
	}
	c.int("count", &it.Count)
	c.int("next", &it.Next)
	objects(c, "attempts", &it.Attempts, func(c *codec, a *ItemsAttempt) {
		c.int("attempt", &a.Attempt)
		c.str("token", &a.Token)
	})
	c.str("undo_token", &it.UndoToken)
	c.bool("keeps_completed", &it.KeepsCompleted)
	c.ints("undo_rejected", &it.UndoRejected)
	var each json.RawMessage
	if !c.decoding && it.Next > 0 {
		each = it.appendEach(nil)
	}
	c.raw("each", &each)
	if c.decoding {
		if err := it.readEach(each); err != nil {
			c.fail("each", err.Error())
		}
	}
}

// itemStates are the states of an item, with their stored forms. The zero value of storedItem is the first one.
var itemStates = [...]struct {
	name   StepState
	letter byte
}{{StepPending, 'p'}, {StepRunning, 'r'}, {StepCompleted, 'c'}, {StepError, 'e'}, {StepUndoing, 'u'}, {StepUndone, 'd'}}

// appendEach appends the states of the items below Next: [state, attempt, seq, output, error], without the zero values at
// the end.
func (it *Items) appendEach(b []byte) []byte {
	b = append(b, '[')
	for i := range it.Next {
		if i > 0 {
			b = append(b, ',')
		}
		x := it.Item(i)
		b = append(b, '[', '"', itemStates[it.stored(i).state].letter, '"')
		parts := 0
		switch {
		case x.Error != nil:
			parts = 4
		case len(x.Output) > 0:
			parts = 3
		case x.Seq != 0:
			parts = 2
		case x.Attempt != 0:
			parts = 1
		}
		if parts > 0 {
			b = strconv.AppendInt(append(b, ','), int64(x.Attempt), 10)
		}
		if parts > 1 {
			b = strconv.AppendUint(append(b, ','), x.Seq, 10)
		}
		if parts > 2 {
			b = append(append(b, ','), orNull(x.Output)...)
		}
		if parts > 3 {
			b = appendObject(append(b, ','), x.Error)
		}
		b = append(b, ']')
	}
	return append(b, ']')
}

// readEach reads what appendEach wrote.
func (it *Items) readEach(each json.RawMessage) error {
	if it.Count < 0 || it.Count > MaxItems || it.Next < 0 || it.Next > it.Count {
		return fmt.Errorf("item %d is next of %d", it.Next, it.Count)
	}
	it.groups = newItemGroups(it.Count)
	n := 0
	if len(each) > 0 {
		_, err := jsonscan.EachElement(each, 0, 0, func(el []byte) error {
			if n == it.Next {
				return errors.New("more items than have started")
			}
			x, err := it.readItem(el)
			if err == nil {
				*it.stored(n) = x.stored()
			}
			n++
			return err
		})
		if err != nil {
			return err
		}
	}
	if n != it.Next {
		return fmt.Errorf("%d items, and %d have started", n, it.Next)
	}
	return nil
}

func (it *Items) readItem(el []byte) (x Item, err error) {
	part := 0
	_, err = jsonscan.EachElement(el, 0, 0, func(v []byte) (err error) {
		switch part {
		case 0:
			x.State = ""
			for _, s := range itemStates {
				if len(v) == len(`"p"`) && v[1] == s.letter {
					x.State = s.name
				}
			}
			if x.State == "" {
				err = fmt.Errorf("%s is no state of an item", v)
			}
		case 1:
			var n int64
			n, err = strconv.ParseInt(string(v), 10, 32)
			x.Attempt = int(n)
		case 2:
			x.Seq, err = strconv.ParseUint(string(v), 10, 64)
		case 3:
			if string(v) != "null" || x.State == StepCompleted {
				x.Output = slices.Clone(v)
			}
		case 4:
			x.Error = &Error{}
			err = decodeObject(v, x.Error)
			if x.Error != nil && string(x.Output) == "null" {
				x.Output = nil
			}
		}
		part++
		return err
	})
	it.count(x.State, 1)
	it.outputBytes += x.outputBytes()
	if x.held() {
		it.Held++
	}
	return x, err
}

// resolve sets what isn't stored, after a step was decoded.
func (it *Items) resolve(input json.RawMessage, undoes bool) (err error) {
	if it.At != "" {
		if it.List, err = atPointer(input, it.At); err != nil {
			return err
		}
	}
	if err = it.index(); err != nil {
		return err
	}
	if len(it.starts) != it.Count {
		return fmt.Errorf("%d items in the list, want %d", len(it.starts), it.Count)
	}
	it.deriveOrder(undoes)
	return nil
}

// ItemTaskID returns the id that the task of an item has, unless the definition gives it another one.
func ItemTaskID(task, step string, item int) string {
	return task + "/" + step + "/" + strconv.Itoa(item)
}

// ItemTaskIDOf returns the id of the task of a step's item: the default one, with the number of the attempt that started
// it. A definition that gives its children ids of its own gives them others.
func ItemTaskIDOf(t *Task, step, item int) string {
	id := ItemTaskID(t.KeyName(), t.Plan.Steps[step].ID, item)
	if n := t.Steps[step].Items.Item(item).Attempt; n > 1 {
		id += "~" + strconv.Itoa(n)
	}
	return id
}
