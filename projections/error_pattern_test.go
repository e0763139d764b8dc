package projections

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMessagePattern(t *testing.T) {
	for message, want := range map[string]string{
		"":                                      "",
		"none left":                             "none left",
		"card 4111 of customer 77 was declined": "card # of customer # was declined",
		"no attempt is left; the last: http_503: 503 Service Unavailable": "no attempt is left; the last: #: # Service Unavailable",
		`sku "x-1 of \"y\"" isn't there`:                                  `sku # isn't there`,
		"can't reach 'the shop': it's closed":                             "can't reach #: it's closed",
		"dial tcp 10.0.0.1:8080: connect: connection refused":             "dial tcp #: connect: connection refused",
		"at 2026-11-26T14:49:00.123Z, after 3.2s":                         "at #, after #",
		"https://api.example.com/v1/charges/ch_3Nx failed":                "https://api.example.com/#/charges/# failed",
		"request 0b1fd0e2-abcd-4b53-fade-0242ac120002 timed out":          "request # timed out",
		"digest deadbeef is not decade":                                   "digest # is not decade",
		"order o-abc is unknown, not o-abcd":                              "order # is unknown, not o-abcd",
		"  two\n\tlines  of\x00text ":                                     "two lines of text",
		"«été» manque à ‘l’eau’, “tout” est `là`":                         "# manque à #, # est #",
		"the 'end":            "the 'end",
		"\xff\xfe \"\xff\" 7": "�� # #",
	} {
		if got := messagePattern(message, "o-abc"); got != want {
			t.Errorf("%q\n got %q\nwant %q", message, got, want)
		}
	}
	long := messagePattern(strings.Repeat("é", 5000), "o")
	if len(long) != MaxPatternBytes || !utf8.ValidString(long) {
		t.Errorf("a pattern of %d bytes", len(long))
	}
}

// Messages that differ only in their values have one pattern, and a pattern is its own pattern.
func FuzzMessagePattern(f *testing.F) {
	f.Add("card 4111 of 'a' in deadbeef", "order-1")
	f.Fuzz(func(t *testing.T, message, task string) {
		got := messagePattern(message, task)
		if !utf8.ValidString(got) || len(got) > MaxPatternBytes {
			t.Fatalf("%q: the pattern %q has %d bytes", message, got, len(got))
		}
		for _, r := range got {
			if r >= '0' && r <= '9' {
				t.Fatalf("%q: the pattern %q has a digit", message, got)
			}
		}
	})
}
