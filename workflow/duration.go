package workflow

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration. Its text is in Go's syntax without trailing zero units: "30m", "200ms", "1h30m".
type Duration time.Duration

// String returns the shortest text that ParseDuration parses to d.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// MarshalText returns the text of String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses text as ParseDuration does.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	if err != nil {
		return err
	}
	*d = v
	return nil
}

// ParseDuration reads a duration in Go's syntax: "10s", "200ms", "1h30m". It may begin with days of 24 hours: "30d",
// "1d12h".
func ParseDuration(s string) (Duration, error) {
	days, rest, ok := parseDays(s)
	if ok && rest == "" {
		return days, nil
	}
	v, err := time.ParseDuration(rest)
	if err != nil || ok && (v < 0 || Duration(v) > MaxDuration || strings.HasPrefix(rest, "+")) {
		return 0, fmt.Errorf("%q is not a duration; write a number and a unit such as 200ms, 10s, 30m or 1h30m", s)
	}
	return days + Duration(v), nil
}

// parseDays reads a whole number of days at the beginning of a duration. ok is false if there are none, or more than
// MaxDuration; rest is then s.
func parseDays(s string) (days Duration, rest string, ok bool) {
	number, rest, found := strings.Cut(s, "d")
	n, err := strconv.ParseUint(number, 10, 16)
	if days = Duration(n) * Duration(24*time.Hour); !found || err != nil || days > MaxDuration {
		return 0, s, false
	}
	return days, rest, true
}

// Within is a *Duration for the optional fields of Step and Undo.
func Within(d time.Duration) *Duration {
	w := Duration(d)
	return &w
}
