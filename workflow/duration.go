package workflow

import (
	"fmt"
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

// ParseDuration reads a duration in Go's syntax: "10s", "200ms", "1h30m".
func ParseDuration(s string) (Duration, error) {
	v, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write a number and a unit such as 200ms, 10s, 30m or 1h30m", s)
	}
	return Duration(v), nil
}

// Within is a *Duration for the optional fields of Step and Undo.
func Within(d time.Duration) *Duration {
	w := Duration(d)
	return &w
}
