package events

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestNamesNotedInOnePass checks that CheckJSON and decodeUntrusted refuse the same duplicate names as checkNames.
func TestNamesNotedInOnePass(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 20000 {
		data := namedValue(random, nil, 0)
		want := checkNames(data)
		if want != nil {
			refused++
		}
		if got := CheckJSON(data); (got == nil) != (want == nil) {
			t.Fatalf("CheckJSON(%s): %v; all names: %v", data, got, want)
		}
		body := fmt.Appendf(nil, `{"task":%s}`, data)
		if got := decodeUntrusted(body, ignores{}, 0); (got == nil) != (want == nil) {
			t.Fatalf("decodeOutside(%s): %v; all names: %v", body, got, want)
		}
	}
	if refused < 1000 || refused > 19000 {
		t.Errorf("%d of 20000 values have two members of one name: the test shows little", refused)
	}
}

// ignores has no fields.
type ignores struct{}

func (ignores) fields(*codec) {}

// namedValue appends a value with objects of few or many members with similar names.
func namedValue(random *rand.Rand, dst []byte, depth int) []byte {
	if depth > 3 || random.IntN(3) == 0 && depth > 0 {
		return append(dst, `"a":1`[:3]...)
	}
	if random.IntN(4) == 0 {
		return append(namedValue(random, append(dst, '['), depth+1), ']')
	}
	dst = append(dst, '{')
	for i := range random.IntN(7) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, namesAlike(random)...)
		dst = namedValue(random, append(dst, ':'), depth+1)
	}
	return append(dst, '}')
}

// namesAlike returns one of many similar names, some of which are equal except for escapes.
func namesAlike(random *rand.Rand) []byte {
	name := bytes.Repeat([]byte{byte('a' + random.IntN(26))}, random.IntN(5))
	name = append(name, byte('a'+random.IntN(26)))
	if random.IntN(20) == 0 {
		return fmt.Appendf(nil, `"\u%04x%s"`, name[0], name[1:])
	}
	return fmt.Appendf(nil, "%q", name)
}
