package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// MaxJSONDepth bounds the nesting of arrays and objects in JSON from outside: a record of an inbox, the result of an
// expression.
const MaxJSONDepth = jsonscan.MaxUntrustedDepth

// maxJSONFields bounds the members of an object with known fields.
const maxJSONFields = 512

// untrustedLevel is the level at which JSON from outside is read, so that MaxJSONDepth levels are left.
const untrustedLevel = jsonscan.MaxDepth - jsonscan.MaxUntrustedDepth

// object holds the members of a JSON object as slices of its text.
type object struct {
	data    []byte
	members []member
	// seen has a bit for each name that is there, by jsonscan.NameBit. With it most names needn't be compared with those before
	// them.
	seen uint64
	// checkNames is true if the names within the values are checked too. The result is in names.
	checkNames bool
	names      jsonscan.NameCheck
}

// member is the position of a member's name and of its value.
type member struct {
	jsonscan.Name
	start, end int32
}

// name is the name of member i.
func (o *object) name(i int) []byte {
	m := &o.members[i]
	if !m.Escaped {
		return o.data[m.Start:m.End]
	}
	return jsonscan.Unescape(o.data[m.Start:m.End])
}

// value is the value of member i, verbatim.
func (o *object) value(i int) []byte { return o.data[o.members[i].start:o.members[i].end] }

// hasName reports whether member i has this name.
func (o *object) hasName(i int, name string) bool {
	m := &o.members[i]
	if m.Escaped {
		return string(o.name(i)) == name
	}
	return string(o.data[m.Start:m.End]) == name
}

// reset drops the reference to the text.
func (o *object) reset() { o.data, o.members, o.seen = nil, o.members[:0], 0 }

// notUTF8 says where data isn't UTF-8.
func notUTF8(data []byte) error {
	i := 0
	for i < len(data) {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	return fmt.Errorf("not UTF-8 at byte %d", i)
}

func badValue(name, what string) error { return fmt.Errorf("field %q: %s", name, what) }

// scan checks that data is one JSON object in UTF-8, and finds its members. level is the nesting around it. Members
// must have distinct names.
func (o *object) scan(data []byte, level int) error {
	if !utf8.Valid(data) {
		return notUTF8(data)
	}
	if len(data) > math.MaxInt32 {
		return errors.New("longer than 2 GiB")
	}
	return o.scanPart(data, level)
}

// scanPart is scan for a part of a value that was scanned already.
func (o *object) scanPart(data []byte, level int) error {
	o.reset()
	o.data = data
	i := jsonscan.SkipSpace(data, 0)
	if i >= len(data) || data[i] != '{' {
		return jsonscan.ErrNotObject
	}
	i = jsonscan.SkipSpace(data, i+1)
	if i < len(data) && data[i] == '}' {
		return jsonscan.AtEnd(data, i+1)
	}
	for {
		var err error
		if i, err = o.scanMember(i, level); err != nil {
			return err
		}
		if len(o.members) > maxJSONFields {
			return fmt.Errorf("more than %d members", maxJSONFields)
		}
		if i = jsonscan.SkipSpace(data, i); i >= len(data) {
			return jsonscan.SyntaxError(data, i)
		}
		switch data[i] {
		case ',':
			i = jsonscan.SkipSpace(data, i+1)
		case '}':
			return jsonscan.AtEnd(data, i+1)
		default:
			return jsonscan.SyntaxError(data, i)
		}
	}
}

// scanMember adds the member at i and returns its end.
func (o *object) scanMember(i, level int) (int, error) {
	name, nameEnd, err := jsonscan.ScanName(o.data, i)
	if err != nil {
		return i, err
	}
	if i = jsonscan.SkipSpace(o.data, nameEnd); i >= len(o.data) || o.data[i] != ':' {
		return i, jsonscan.SyntaxError(o.data, i)
	}
	i = jsonscan.SkipSpace(o.data, i+1)
	var names *jsonscan.NameCheck
	if o.checkNames {
		names = &o.names
	}
	end, err := jsonscan.SkipValue(o.data, i, level+1, names)
	if err != nil {
		return end, err
	}
	return end, o.addMember(member{name, int32(i), int32(end)})
}

// addMember adds a member. A name that is there already is an error.
func (o *object) addMember(m member) error {
	o.members = append(o.members, m)
	last := len(o.members) - 1
	name := o.name(last)
	bit := jsonscan.NameBit(name)
	if o.seen&bit == 0 {
		o.seen |= bit
		return nil
	}
	for i := range last {
		if o.hasName(i, string(name)) {
			return duplicateNameError(name)
		}
	}
	return nil
}

// eachMember calls each with the name and the text of every member of a JSON object. It has no bound on their number.
func eachMember(data []byte, each func(name, member []byte)) error {
	end, err := jsonscan.EachMember(data, jsonscan.SkipSpace(data, 0), 0, func(m jsonscan.Member) { each(jsonscan.UnquoteBytes(m.Name), m.Text) })
	if err != nil {
		return err
	}
	return jsonscan.AtEnd(data, end)
}

// scanArray calls each with every element of a JSON array.
func scanArray(data []byte, each func([]byte) error) error {
	end, err := jsonscan.EachElement(data, jsonscan.SkipSpace(data, 0), 0, each)
	if err != nil {
		return err
	}
	return jsonscan.AtEnd(data, end)
}

// EncodeJSON is json.Marshal without HTML escapes. They would make each <, > and & six bytes long, so that values within
// a bound exceed it.
func EncodeJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// ValidJSON reports whether data passes CheckJSON.
func ValidJSON(data []byte) bool { return CheckJSON(data) == nil }

// CheckJSON returns why data isn't one JSON value that all decoders read alike: in UTF-8, no deeper than MaxJSONDepth,
// without half a surrogate pair, and without two members of one name in an object.
func CheckJSON(data []byte) error { return checkJSON(data, 0) }

// requestLevels are the levels that undo_of or check_of adds to an input and an output. checkLevels is the level that the
// answer to a check adds to an output.
const (
	requestLevels = 2
	checkLevels   = 1
)

// CheckRequestJSON is CheckJSON for the value of a request. It may nest two levels deeper than the input and the output
// that undo_of and check_of contain.
func CheckRequestJSON(data []byte) error { return checkJSON(data, requestLevels) }

// CheckReplyJSON is CheckJSON for the value of a reply to a run of this kind. The answer to a check may nest one level
// deeper than the output that it contains.
func CheckReplyJSON(k Kind, data []byte) error {
	if k == Check {
		return checkJSON(data, checkLevels)
	}
	return CheckJSON(data)
}

// checkJSON is CheckJSON for a value that may nest some levels deeper, since Waybill's own format encloses JSON from
// outside.
func checkJSON(data []byte, levels int) error {
	if !utf8.Valid(data) {
		return notUTF8(data)
	}
	var names jsonscan.NameCheck
	end, err := jsonscan.SkipValue(data, jsonscan.SkipSpace(data, 0), untrustedLevel-levels, &names)
	if err != nil {
		return err
	}
	if err := jsonscan.AtEnd(data, end); err != nil || !names.MaybeDuplicate {
		return err
	}
	return checkNames(data)
}

// checkNames refuses two members of one name in an object, at any depth of a valid JSON value.
// Decoders differ in which of them they use.
func checkNames(data []byte) error {
	type level struct {
		first int    // index in names of its first member
		seen  uint64 // a bit for each name, by jsonscan.NameBit
		check bool   // two names have the same bit
	}
	var fewNames [16][]byte
	var fewLevels [4]level
	names, levels := fewNames[:0], fewLevels[:1]
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			levels = append(levels, level{first: len(names)})
		case '}', ']':
			l := levels[len(levels)-1]
			if l.check {
				if err := checkDistinct(names[l.first:]); err != nil {
					return err
				}
			}
			names, levels = names[:l.first], levels[:len(levels)-1]
		case '"':
			end, err := jsonscan.SkipString(data, i)
			if err != nil {
				return err
			}
			if next := jsonscan.SkipSpace(data, end); next < len(data) && data[next] == ':' {
				name := jsonscan.UnquoteBytes(data[i:end])
				l, bit := &levels[len(levels)-1], jsonscan.NameBit(name)
				l.check = l.check || l.seen&bit != 0
				l.seen |= bit
				names = append(names, name)
			}
			i = end - 1
		}
	}
	return nil
}

// checkDistinct refuses two equal names. It sorts names.
func checkDistinct(names [][]byte) error {
	slices.SortFunc(names, bytes.Compare)
	for i := range names[1:] {
		if bytes.Equal(names[i], names[i+1]) {
			return duplicateNameError(names[i])
		}
	}
	return nil
}

func duplicateNameError(name []byte) error {
	return fmt.Errorf("JSON: two members are named %q", cut(name, MaxNameBytes))
}
