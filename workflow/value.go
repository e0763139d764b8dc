package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// value returns the CEL value of raw JSON. Objects and lists keep their bytes. They are decoded one level at a time,
// when their content is used.
func value(raw []byte) ref.Val {
	switch raw[0] {
	case '{':
		return &object{raw: raw}
	case '[':
		return &list{raw: raw}
	case '"':
		return types.String(jsonscan.Unquote(raw))
	case 't':
		return types.True
	case 'f':
		return types.False
	case 'n':
		return types.NullValue
	}
	return number(raw)
}

// number returns an int if the number has no fraction and no exponent and fits 64 bits, otherwise a double.
func number(raw []byte) ref.Val {
	text := string(raw)
	if !strings.ContainsAny(text, ".eE") && text != "-0" {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return types.Int(i)
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return types.NewErr("the number %s is out of range", text)
	}
	return types.Double(v)
}

// document returns the value of a JSON text. An empty text is null.
func document(raw []byte, what string) ref.Val {
	if len(raw) == 0 {
		return types.NullValue
	}
	v := trim(raw)
	if v == nil {
		return types.NewErr("%s is not valid JSON, or more than %d levels deep", what, maxJSONDepth)
	}
	return value(v)
}

// object is a JSON object, for one goroutine. Its keys are iterated in sorted order, so results don't depend on the
// order in the JSON.
type object struct {
	raw      []byte
	lookedUp bool // a member was looked up before
	loaded   bool
	keys     []string
	values   map[string]ref.Val
}

func (o *object) load() {
	if o.loaded {
		return
	}
	o.loaded = true
	o.values = map[string]ref.Val{}
	// The value was scanned before.
	_, _ = jsonscan.EachMember(o.raw, 0, 0, func(m jsonscan.Member) { o.values[jsonscan.Unquote(m.Name)] = value(m.Value) })
	o.keys = slices.Sorted(maps.Keys(o.values))
}

// FindStringKey is called for a selection by a constant name. Most objects have one such lookup; it scans the bytes. A
// second lookup, perhaps in a macro's loop, decodes all members.
func (o *object) FindStringKey(name string) (any, bool) {
	if !o.lookedUp && !o.loaded {
		o.lookedUp = true
		raw, _ := memberOf(o.raw, name)
		if raw == nil {
			return nil, false
		}
		return value(raw), true
	}
	o.load()
	v, found := o.values[name]
	return v, found
}

func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	v, found := o.FindStringKey(string(name))
	if !found {
		return nil, false
	}
	return v.(ref.Val), true
}

func (o *object) Get(key ref.Val) ref.Val {
	if v, found := o.Find(key); found {
		return v
	}
	return types.NewErr("no such key: %v", key)
}

func (o *object) Contains(key ref.Val) ref.Val {
	_, found := o.Find(key)
	return types.Bool(found)
}

func (o *object) Size() ref.Val {
	o.load()
	return types.Int(len(o.keys))
}

func (o *object) Iterator() traits.Iterator {
	o.load()
	keys := make([]ref.Val, len(o.keys))
	for i, k := range o.keys {
		keys[i] = types.String(k)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, keys).Iterator()
}

func (o *object) Equal(other ref.Val) ref.Val {
	m, ok := other.(traits.Mapper)
	if !ok || m.Size() != o.Size() {
		return types.False
	}
	for _, k := range o.keys {
		theirs, found := m.Find(types.String(k))
		if !found || types.Equal(o.values[k], theirs) != types.True {
			return types.False
		}
	}
	return types.True
}

func (o *object) ConvertToType(t ref.Type) ref.Val { return convert(o, types.MapType, t) }

func (o *object) ConvertToNative(t reflect.Type) (any, error) { return toNative(o, o.raw, t) }

func (o *object) Type() ref.Type { return types.MapType }

func (o *object) Value() any { return json.RawMessage(o.raw) }

// list is a JSON list, for one goroutine.
type list struct {
	raw    []byte
	lister traits.Lister
}

func (l *list) elements() traits.Lister {
	if l.lister == nil {
		var elements []ref.Val
		// The value was scanned before.
		_, _ = jsonscan.EachElement(l.raw, 0, 0, func(raw []byte) error {
			elements = append(elements, value(raw))
			return nil
		})
		l.lister = types.NewRefValList(types.DefaultTypeAdapter, elements)
	}
	return l.lister
}

func (l *list) Add(other ref.Val) ref.Val        { return l.elements().Add(other) }
func (l *list) Contains(v ref.Val) ref.Val       { return l.elements().Contains(v) }
func (l *list) Equal(other ref.Val) ref.Val      { return l.elements().Equal(other) }
func (l *list) Get(i ref.Val) ref.Val            { return l.elements().Get(i) }
func (l *list) Iterator() traits.Iterator        { return l.elements().Iterator() }
func (l *list) Size() ref.Val                    { return l.elements().Size() }
func (l *list) ConvertToType(t ref.Type) ref.Val { return convert(l, types.ListType, t) }
func (l *list) ConvertToNative(t reflect.Type) (any, error) {
	return toNative(l, l.raw, t)
}
func (l *list) Type() ref.Type { return types.ListType }
func (l *list) Value() any     { return json.RawMessage(l.raw) }

func convert(v ref.Val, own *types.Type, t ref.Type) ref.Val {
	switch t {
	case own:
		return v
	case types.TypeType:
		return own
	}
	return types.NewErr("type conversion error from '%s' to '%s'", own, t)
}

func toNative(v ref.Val, raw []byte, t reflect.Type) (any, error) {
	switch {
	case reflect.TypeOf(v).AssignableTo(t):
		return v, nil
	case reflect.TypeFor[json.RawMessage]().AssignableTo(t):
		return json.RawMessage(raw), nil
	}
	return nil, fmt.Errorf("unsupported conversion from %v to %v", v.Type(), t)
}
