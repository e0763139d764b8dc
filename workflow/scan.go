package workflow

import (
	"strings"
	"unicode/utf8"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// maxJSONDepth bounds the nesting of a task's input, outputs and errors. An expression that reads deeper JSON fails.
const maxJSONDepth = jsonscan.MaxDepth

// isNumber reports whether s is a number in JSON's syntax.
func isNumber(s string) bool {
	if s == "" {
		return false
	}
	end, err := jsonscan.SkipNumber([]byte(s), 0)
	return err == nil && end == len(s)
}

// trim returns the single value in b without the white space around it. It returns nil if b isn't a single valid value.
func trim(b []byte) []byte {
	i := jsonscan.SkipSpace(b, 0)
	end, err := jsonscan.SkipValue(b, i, 0, nil)
	if err != nil || jsonscan.AtEnd(b, end) != nil {
		return nil
	}
	return b[i:end]
}

// memberOf returns the value of an object's member and the index after the object. The last of repeated keys counts.
// value is nil if b isn't an object or has no such member.
func memberOf(b []byte, name string) (value []byte, end int) {
	end, err := jsonscan.EachMember(b, 0, 0, func(m jsonscan.Member) {
		if keyIs(m.Name, name) {
			value = m.Value
		}
	})
	if err != nil {
		return nil, 0
	}
	return value, end
}

// elementOf returns an element of a list and the index after the list. value is nil if b isn't a list or has no such
// element.
func elementOf(b []byte, n int64) (value []byte, end int) {
	i := int64(0)
	end, err := jsonscan.EachElement(b, 0, 0, func(v []byte) error {
		if i == n {
			value = v
		}
		i++
		return nil
	})
	if err != nil {
		return nil, 0
	}
	return value, end
}

// keyIs reports whether a key, in quotes, equals a name.
func keyIs(key []byte, name string) bool {
	inner := key[1 : len(key)-1]
	if string(inner) == name {
		// Equal bytes are equal names, unless they contain an escape.
		return !strings.Contains(name, `\`)
	}
	for _, c := range inner {
		if c == '\\' || c >= utf8.RuneSelf {
			return jsonscan.Unquote(key) == name
		}
	}
	return false
}
