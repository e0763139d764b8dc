package projections

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxPatternBytes bounds the pattern of an error's message.
const MaxPatternBytes = 256

// patternInputMaxBytes bounds the part of a message that its pattern is made of, since a text with many quotes takes a time
// that grows with the square of its length.
const patternInputMaxBytes = 1 << 10

// hole is what a pattern has instead of a value.
const hole = "#"

// hexWordMin is the number of characters from which a word of the letters a to f alone is a value.
const hexWordMin = 8

// messagePattern returns what the messages of one error have in common. A value becomes a hole: the task's id, a text
// in quotes, a word with a digit, and a long word of the letters a to f. Adjacent holes become one, and so does white
// space. The result has at most MaxPatternBytes.
func messagePattern(message, task string) string {
	var p pattern
	for text := cutBytes(message, patternInputMaxBytes); text != ""; {
		n := valueLength(text, p.last, task)
		if n > 0 {
			p.addHole()
			text = text[n:]
			p.last = 'v'
			continue
		}
		word := wordLength(text)
		switch {
		case word == 0:
			r, size := utf8.DecodeRuneInString(text)
			p.addRune(r)
			text = text[size:]
			continue
		case isValue(text[:word]), p.joint == "-" && isHex(text[:word]): // a part of a UUID
			p.addHole()
		default:
			p.addText(text[:word])
		}
		p.last, _ = utf8.DecodeLastRuneInString(text[:word])
		text = text[word:]
	}
	return cutBytes(strings.TrimSpace(p.String()), MaxPatternBytes)
}

// pattern is a pattern that is being written.
type pattern struct {
	strings.Builder
	last     rune   // of the message
	joint    string // what follows a hole, as long as it may lie within a value
	afterOne bool   // the pattern ends with a hole and joint
}

// joints are the characters that may lie within a value, as in 10.0.0.1:80 and 2026-11-26.
const joints = ".:-/_+,"

func (p *pattern) addHole() {
	if !p.afterOne {
		p.WriteString(hole)
	}
	p.joint, p.afterOne = "", true
}

func (p *pattern) addText(text string) {
	p.endHole()
	p.WriteString(text)
}

func (p *pattern) addRune(r rune) {
	p.last = r
	switch {
	case p.afterOne && p.joint == "" && strings.ContainsRune(joints, r):
		p.joint = string(r)
	case unicode.IsSpace(r) || unicode.IsControl(r):
		p.endHole()
		if s := p.String(); s != "" && s[len(s)-1] != ' ' {
			p.WriteByte(' ')
		}
	default:
		p.endHole()
		p.WriteRune(r)
	}
}

func (p *pattern) endHole() {
	p.WriteString(p.joint)
	p.joint, p.afterOne = "", false
}

// quotes are the characters that begin a text in quotes, and those that end it.
var quotes = map[rune]rune{'"': '"', '\'': '\'', '`': '`', '“': '”', '‘': '’', '«': '»'}

// valueLength returns the length of the task's id or of a text in quotes at the beginning of text; 0: there is neither.
// last is the character before.
func valueLength(text string, last rune, task string) int {
	if isWordRune(last) {
		return 0
	}
	if task != "" && strings.HasPrefix(text, task) {
		if after, _ := utf8.DecodeRuneInString(text[len(task):]); !isWordRune(after) {
			return len(task)
		}
	}
	open, size := utf8.DecodeRuneInString(text)
	shut, quoted := quotes[open]
	if !quoted {
		return 0
	}
	escaped := false
	for i, r := range text[size:] {
		end := size + i + utf8.RuneLen(r)
		if r != shut || escaped {
			escaped = r == '\\' && !escaped
			continue
		}
		if after, _ := utf8.DecodeRuneInString(text[end:]); !isWordRune(after) { // not the apostrophe of a word
			return end
		}
	}
	return 0
}

// isWordRune reports whether a character is a part of a word. The error rune, which is returned at the end of a text,
// isn't.
func isWordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

func wordLength(text string) int {
	for i, r := range text {
		if !isWordRune(r) {
			return i
		}
	}
	return len(text)
}

// isValue reports whether a word is a value, such as a number or an id.
func isValue(word string) bool {
	return strings.ContainsFunc(word, unicode.IsDigit) || len(word) >= hexWordMin && isHex(word)
}

// isHex reports whether a word has only the digits and letters of hexadecimal numbers.
func isHex(word string) bool { return strings.Trim(word, "0123456789abcdefABCDEF") == "" }

// cutBytes cuts a text to a number of bytes, between characters.
func cutBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// groupIDBytes is the length of the hash that identifies a group.
const groupIDBytes = 8

// fingerprint identifies the errors of one cause: it is a hash of the texts.
func fingerprint(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		h.Write(binary.AppendUvarint(nil, uint64(len(text))))
		h.Write([]byte(text))
	}
	return hex.EncodeToString(h.Sum(nil)[:groupIDBytes])
}
