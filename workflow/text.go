package workflow

import "strings"

// part is a piece of a string: literal text, or an expression.
type part struct {
	text       string
	expression bool
	offset     int // of an expression's text in the string, in bytes
}

// splitText splits a string at its expressions "${ ... }". "$${" is a literal "${". If an expression isn't closed, ok
// is false and at is its offset.
func splitText(s string) (parts []part, at int, ok bool) {
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			parts = append(parts, part{text: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "$${"):
			literal.WriteString("${")
			i += len("$${")
		case strings.HasPrefix(s[i:], "${"):
			flush()
			begin := i + len("${")
			end := expressionEnd(s, begin)
			if end < 0 {
				return nil, i, false
			}
			inner := s[begin:end]
			lead := len(inner) - len(strings.TrimLeft(inner, " \t\r\n"))
			parts = append(parts, part{text: strings.TrimSpace(inner), expression: true, offset: begin + lead})
			i = end + 1
		default:
			literal.WriteByte(s[i])
			i++
		}
	}
	flush()
	return parts, 0, true
}

// expressionEnd returns the index of the brace that closes the expression at i, or -1. It skips the braces of objects,
// and braces in strings and comments.
func expressionEnd(s string, i int) int {
	depth := 0
	for i < len(s) {
		switch c := s[i]; c {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		case '"', '\'':
			end := literalEnd(s, i)
			if end < 0 {
				return -1
			}
			i = end
			continue
		case '/':
			if strings.HasPrefix(s[i:], "//") {
				line := strings.IndexByte(s[i:], '\n')
				if line < 0 {
					return -1
				}
				i += line
			}
		}
		i++
	}
	return -1
}

// literalEnd returns the index after the CEL string whose quote is at i, or -1. The string has one quote or three.
// After a prefix r it is raw, without escapes.
func literalEnd(s string, i int) int {
	quote := s[i : i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s[i:], triple) {
		quote = triple
	}
	raw := isRaw(s[:i])
	for i += len(quote); i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], quote):
			return i + len(quote)
		case s[i] == '\\' && !raw:
			i++
		}
	}
	return -1
}

// isRaw reports whether the text before a quote ends with a prefix r, rb or br that is a separate word.
func isRaw(before string) bool {
	word := len(before)
	for word > 0 && isWord(before[word-1]) {
		word--
	}
	switch strings.ToLower(before[word:]) {
	case "r", "rb", "br":
		return true
	}
	return false
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
