// Package text writes numbers and lists in sentences for people.
package text

import (
	"fmt"
	"strings"
)

// Count returns a number with its noun: 1 task, 2 tasks, 0 entries.
func Count[N ~int | ~int32 | ~int64 | ~uint64](n N, noun string) string {
	return fmt.Sprintf("%d %s", n, Plural(n, noun))
}

// Plural returns the form of a regular noun for a number of things.
func Plural[N ~int | ~int32 | ~int64 | ~uint64](n N, noun string) string {
	switch {
	case n == 1:
		return noun
	case endsInConsonantY(noun):
		return noun[:len(noun)-1] + "ies"
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "x"), strings.HasSuffix(noun, "ch"), strings.HasSuffix(noun, "sh"):
		return noun + "es"
	}
	return noun + "s"
}

// Verb returns the form of a verb that agrees with a number of things: singular of one, else plural.
func Verb[N ~int | ~int32 | ~int64 | ~uint64](n N, singular, plural string) string {
	if n == 1 {
		return singular
	}
	return plural
}

func endsInConsonantY(word string) bool {
	n := len(word)
	return n > 1 && word[n-1] == 'y' && !strings.ContainsRune("aeiou", rune(word[n-2]))
}

// Shorten cuts a text to a number of characters.
func Shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// List joins the first entries of a list, and says how many more there are.
func List(entries []string, most int) string {
	if more := len(entries) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(entries[:most], ", "), more)
	}
	return strings.Join(entries, ", ")
}
