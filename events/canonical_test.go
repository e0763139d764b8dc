package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonValue is a JSON value that can be written in many ways: an object, an array, a text, a number or a word.
type jsonValue struct {
	members []jsonMember
	array   []jsonValue
	text    *string
	number  *jsonNumber
	word    string
	object  bool
}

type jsonMember struct {
	name  string
	value jsonValue
}

// jsonNumber is digits times ten to the power.
type jsonNumber struct {
	negative bool
	digits   string
	power    int64
}

// jsonWriter writes values in a random form.
type jsonWriter struct{ *rand.Rand }

func (w jsonWriter) space() string { return []string{"", "", " ", "\n\t", "\r"}[w.IntN(5)] }

func (w jsonWriter) write(v jsonValue) string {
	s := w.space() + w.bare(v) + w.space()
	return s
}

func (w jsonWriter) bare(v jsonValue) string {
	switch {
	case v.text != nil:
		return w.text(*v.text)
	case v.number != nil:
		return w.number(*v.number)
	case v.word != "":
		return v.word
	case v.object:
		parts := make([]string, len(v.members))
		for i, m := range v.members {
			parts[i] = w.space() + w.text(m.name) + w.space() + ":" + w.write(m.value)
		}
		w.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		return "{" + strings.Join(parts, ",") + w.space() + "}"
	}
	parts := make([]string, len(v.array))
	for i, el := range v.array {
		parts[i] = w.write(el)
	}
	return "[" + strings.Join(parts, ",") + w.space() + "]"
}

func (w jsonWriter) text(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		must := r < 0x20 || r == '"' || r == '\\'
		switch {
		case r == '/' && w.IntN(2) == 0:
			b.WriteString(`\/`)
		case r == '\n' && w.IntN(2) == 0:
			b.WriteString(`\n`)
		case (r == '"' || r == '\\') && w.IntN(2) == 0:
			b.WriteString(`\` + string(r))
		case !must && w.IntN(3) > 0:
			b.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, []string{`\u%04x`, `\u%04X`}[w.IntN(2)], unit)
			}
		}
	}
	return b.String() + `"`
}

func (w jsonWriter) number(n jsonNumber) string {
	digits, power := n.digits, n.power
	for range w.IntN(3) { // zeros at the end
		digits, power = digits+"0", power-1
	}
	if power >= 0 && power < 20 && w.IntN(2) == 0 {
		digits, power = digits+strings.Repeat("0", int(power)), 0
	}
	if at := w.IntN(len(digits)); at > 0 && w.IntN(2) == 0 { // a point
		power += int64(len(digits) - at)
		digits = digits[:at] + "." + digits[at:]
	}
	if digits[0] == '0' && len(digits) > 1 && digits[1] != '.' {
		digits = "0." + digits
		power += int64(len(digits) - 2)
	}
	s := digits
	if n.negative {
		s = "-" + s
	}
	if power != 0 || w.IntN(4) == 0 {
		s += []string{"e", "E"}[w.IntN(2)]
		if power >= 0 && w.IntN(2) == 0 {
			s += "+"
		}
		s += fmt.Sprint(power)
	}
	return s
}

// jsonMaker draws random values.
type jsonMaker struct{ *rand.Rand }

func (m jsonMaker) value(depth int) jsonValue {
	kind := m.IntN(6)
	if depth == 0 {
		kind = m.IntN(4)
	}
	switch kind {
	case 0:
		s := m.text()
		return jsonValue{text: &s}
	case 1, 2:
		n := jsonNumber{negative: m.IntN(2) == 0, digits: fmt.Sprint(1 + m.Uint64N([]uint64{9, 1e6, 1e18}[m.IntN(3)])), power: int64(m.IntN(40) - 20)}
		return jsonValue{number: &n}
	case 3:
		return jsonValue{word: []string{"true", "false", "null", "0"}[m.IntN(4)]}
	case 4:
		v := jsonValue{array: make([]jsonValue, m.IntN(4))}
		for i := range v.array {
			v.array[i] = m.value(depth - 1)
		}
		return v
	}
	v := jsonValue{object: true}
	for range m.IntN(6) {
		name := m.text()
		if !slices.ContainsFunc(v.members, func(o jsonMember) bool { return o.name == name }) {
			v.members = append(v.members, jsonMember{name, m.value(depth - 1)})
		}
	}
	return v
}

func (m jsonMaker) text() string {
	const letters = "aabbé/\"\\\n\u2028😀\x00ü"
	all := []rune(letters)
	s := make([]rune, m.IntN(5))
	for i := range s {
		s[i] = all[m.IntN(len(all))]
	}
	return string(s)
}

// changed returns v with one value changed.
func (m jsonMaker) changed(v jsonValue) jsonValue {
	switch {
	case v.text != nil:
		s := *v.text + "x"
		return jsonValue{text: &s}
	case v.number != nil:
		n := *v.number
		switch m.IntN(3) {
		case 0:
			n.negative = !n.negative
		case 1:
			n.power++
		case 2:
			n.digits += "7" // the last digit of many
		}
		return jsonValue{number: &n}
	case v.word != "":
		return jsonValue{word: map[string]string{"true": "false", "false": "null", "null": "0", "0": "true"}[v.word]}
	case v.object && len(v.members) > 0:
		v.members = slices.Clone(v.members)
		i := m.IntN(len(v.members))
		if m.IntN(4) == 0 {
			v.members[i].name += "\x00x" // no other begins like this
			return v
		}
		v.members[i].value = m.changed(v.members[i].value)
		return v
	case len(v.array) > 0:
		v.array = slices.Clone(v.array)
		i := m.IntN(len(v.array))
		v.array[i] = m.changed(v.array[i])
		return v
	}
	return jsonValue{word: "true"}
}

func digestOfInput(t *testing.T, input string) string {
	t.Helper()
	_, in, err := DecodeInput(Tasks, &Record{Value: []byte(`{"id":"a","workflow":"w","input":` + input + `}`)})
	if err != nil {
		t.Fatalf("%s: %v", input, err)
	}
	return in.(*Submission).Digest()
}

// FuzzDigest checks that a submission has the same digest in every form, and another digest if any value is changed.
func FuzzDigest(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		v := jsonMaker{r}.value(4)
		one, other := jsonWriter{r}.write(v), jsonWriter{r}.write(v)
		if digestOfInput(t, one) != digestOfInput(t, other) {
			t.Errorf("seed %d: one value has two digests:\n%s\n%s", seed, one, other)
		}
		if not := (jsonWriter{r}).write(jsonMaker{r}.changed(v)); digestOfInput(t, one) == digestOfInput(t, not) {
			t.Errorf("seed %d: two values have one digest:\n%s\n%s", seed, one, not)
		}
	})
}

// FuzzCanonical checks that the canonical form is a JSON value equal to the original, and its own canonical form.
func FuzzCanonical(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	for _, s := range []string{"[1,1.0,1e0,-0,100e-2,0e99999999999999999999,1e99999999999999999999,12345678901234567]", `{"b":{"d":1,"c":[{"z":1,"a":"\/\u00e9"}]},"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !ValidJSON(data) {
			return
		}
		before := bytes.Clone(data)
		var once, again []byte
		withCanonical(data, func(c []byte) { once = bytes.Clone(c) })
		withCanonical(once, func(c []byte) { again = bytes.Clone(c) })
		if !bytes.Equal(data, before) || !bytes.Equal(once, again) || !ValidJSON(once) {
			t.Fatalf("%q becomes %q, then %q", data, once, again)
		}
		if got, want := exactly(t, once), exactly(t, data); got != want {
			t.Fatalf("%q becomes %q\nwhich is %s\nand was  %s", data, once, got, want)
		}
	})
}

// exactly returns a JSON value as the standard library reads it, with numbers as fractions unless they are huge.
func exactly(t *testing.T, data []byte) string {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	var number func(any) any
	number = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			if i := strings.IndexAny(string(v), "eE"); i >= 0 && len(strings.TrimLeft(string(v[i+1:]), "+-0")) > 3 {
				if !strings.ContainsAny(string(v[:i]), "123456789") {
					return "0/1"
				}
				return "huge"
			}
			r, ok := new(big.Rat).SetString(string(v))
			if !ok {
				t.Fatal(v)
			}
			return r.String()
		case map[string]any:
			for k := range v {
				v[k] = number(v[k])
			}
		case []any:
			for i := range v {
				v[i] = number(v[i])
			}
		}
		return v
	}
	return fmt.Sprintf("%#v", number(v))
}

// TestNumbersOfDigest checks that numbers are compared exactly.
func TestNumbersOfDigest(t *testing.T) {
	for _, same := range [][]string{
		{"1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000"}, {"0", "-0", "0.0", "0e9", "-0.0e-99999999999999999999"},
		{"1200", "1.2e3", "12E2"}, {"1e99999999999999999999", "10e99999999999999999998", "0.1e+100000000000000000000"},
		{"1e-00000000000000000000000", "1"},
	} {
		for _, s := range same[1:] {
			if digestOfInput(t, s) != digestOfInput(t, same[0]) {
				t.Errorf("%s and %s have different digests", s, same[0])
			}
		}
	}
	for _, other := range [][2]string{{"12345678901234567", "12345678901234568"}, {"1", "-1"}, {"0.1", "0.10000000000000000001"}, {"1e400", "1e401"},
		{"1", `"1"`}, {"1e99999999999999999999", "1e99999999999999999998"}, {"12", "21"}, {"1e1", "11"}} {
		if digestOfInput(t, other[0]) == digestOfInput(t, other[1]) {
			t.Errorf("%s and %s have the same digest", other[0], other[1])
		}
	}
}

// TestWholeNumbers checks that a whole number is accepted in every form.
func TestWholeNumbers(t *testing.T) {
	for in, want := range map[string]string{"7": "7", "7.0": "7", "7e0": "7", "70e-1": "7", "0.7e1": "7", "-7.0": "-7", "7e2": "700", "0.0e99999999999999999999": "0",
		"9223372036854775807.0": "9223372036854775807", "9223372036854775808.0": "", "7.5": "", "7e30": "", "7e99999999999999999999": "", `"7"`: "", "7 ": "7", "[7]": "", "true": ""} {
		s := Submission{}
		err := decodeUntrusted([]byte(`{"priority":`+in+`}`), &s, 0)
		if got := fmt.Sprint(s.Priority); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%s is read as %s, %v; want %q", in, got, err, want)
		}
	}
}

// TestAcceptedJSONHasOneReading checks that every inbox refuses JSON that decoders read in different ways, at any
// depth. The reason says where it is.
func TestAcceptedJSONHasOneReading(t *testing.T) {
	reply := []Header{{HeaderRequest, []byte("a/s/do/1")}, {HeaderOutcome, []byte("completed")}}
	control := []Header{{HeaderType, []byte(TypeControl)}, {HeaderID, []byte("c")}}
	recovery := []Header{{HeaderType, []byte(TypeRecovery)}}
	structured := []Header{{HeaderContentType, []byte("application/cloudevents+json")}}
	inboxes := []struct {
		inbox   Inbox
		headers []Header
		value   string // %s: the place of a value
	}{
		{Tasks, nil, `{"id":%s,"workflow":"w"}`}, {Tasks, nil, `{"id":"a","workflow":%s}`}, {Tasks, nil, `{"id":"a","workflow":"w","input":%s}`},
		{Tasks, nil, `{"id":"a","workflow":"w","input":[{"x":%s}]}`}, {Tasks, nil, `{"id":"a","workflow":"w","labels":{"k":%s}}`},
		{Tasks, nil, `{"id":"a","workflow":"w","reply_to":%s}`}, {Tasks, nil, `{"id":"a","workflow":"w","unknown":%s}`},
		{Tasks, structured, `{"type":"waybill.task.submitted.v1","data":{"id":"a","workflow":"w","input":%s}}`},
		{Tasks, structured, `{"type":"waybill.task.submitted.v1","subject":%s,"data":{"id":"a","workflow":"w"}}`},
		{Replies, reply, `%s`}, {Replies, reply, `{"x":[%s]}`},
		{Controls, control, `{"task":%s,"command":"cancel"}`}, {Controls, control, `{"task":"a","command":"cancel","why":%s}`},
		{Controls, control, `{"task":"a","command":"release","step":"s","as":"completed","output":{"x":%s}}`},
		{Recoveries, recovery, `{"task":%s,"timer":1,"action":"hold"}`}, {Recoveries, recovery, `{"task":"a","timer":1,"action":"hold","step":%s,"kind":"do"}`},
	}
	values := map[string]string{
		`"g-\ud83d"`: `\ud83d`, `"g-\uDE00"`: `\uDE00`, `"\ude00\ud83d"`: `\ude00`, `"\ud83dx"`: `\ud83d`, `"\ud83d\u0041"`: `\ud83d`, `"\ud83d\ud83d\ude00"`: `\ud83d`,
		`{"\ud83d":1}`: `\ud83d`, `{"x":1,"y":2,"x":1}`: `two members are named "x"`, `{"x":1,"\u0078":2}`: `two members are named "x"`,
		`[{"a":{"":1,"":2}}]`: `two members are named ""`, "\"\xff\"": "UTF-8", "{\"\xed\xa0\x80\":1}": "UTF-8", "\"\xc0\xaf\"": "UTF-8",
	}
	for _, in := range inboxes {
		for value, detail := range values {
			r := Record{Value: []byte(strings.ReplaceAll(in.value, "%s", value)), Headers: in.headers}
			_, _, err := DecodeInput(in.inbox, &r)
			u, _ := errors.AsType[*Unusable](err)
			if u == nil {
				t.Errorf("%s %q: taken", in.inbox, r.Value)
			} else if u.Reason == ReasonBadJSON && !strings.Contains(u.Detail, detail) || u.Reason != ReasonBadJSON && u.Reason != ReasonBadField {
				t.Errorf("%s %q: %v; want %s", in.inbox, r.Value, u, detail)
			} else if !utf8.ValidString(u.Detail) {
				t.Errorf("%s %q: the detail isn't UTF-8: %q", in.inbox, r.Value, u.Detail)
			}
		}
	}
	good := `{"id":"g-\ud83d\ude00","workflow":"w","input":{"\uD83D\uDE00":"\\ud83d","x":{"x":"x"},"y":["x","x",{"x":1},{"x":1}]}}`
	if task, _, err := DecodeInput(Tasks, &Record{Value: []byte(good)}); err != nil || task != "g-😀" {
		t.Errorf("%s: task %q, %v", good, task, err)
	}
}

// TestManyMembers checks that names with the same jsonscan.NameBit are compared in less than quadratic time, and that a
// duplicate among them is found.
func TestManyMembers(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"id":"a","workflow":"w","input":{`)
	for i := range 40_000 {
		fmt.Fprintf(&b, `"x%05dx":1,`, i)
	}
	for last, want := range map[string]bool{`"y":1}}`: true, `"x00000x":1}}`: false} {
		if _, _, err := DecodeInput(Tasks, &Record{Value: []byte(b.String() + last)}); (err == nil) != want {
			t.Errorf("with %s: %v", last, err)
		}
	}
}
