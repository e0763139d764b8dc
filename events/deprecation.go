package events

import (
	"encoding/json"
	"fmt"
	"time"
)

// Deprecation says that new tasks get a version of a workflow only if their submission names it. It is a header of the
// definition's record, HeaderDeprecation, so the definition and its deprecation are one record of one key. Such a record
// is written after the definition was applied. Without Deprecated it takes the deprecation back.
type Deprecation struct {
	Deprecated bool      `json:"deprecated"`
	Why        string    `json:"why"`
	By         string    `json:"by,omitempty"` // unverified
	At         time.Time `json:"at"`
	AppliedAt  time.Time `json:"applied_at"` // of the definition: its own record may be gone
}

// Header returns the header of the definition's record.
func (d *Deprecation) Header() Header {
	text, err := EncodeJSON(d)
	if err != nil {
		panic(fmt.Sprintf("events: a deprecation: %v", err)) // an instant of a year past 9999
	}
	return Header{Key: HeaderDeprecation, Value: text}
}

// DeprecationOf returns the last deprecation of a definition by its record, also one that was taken back; nil: there is
// none, or this build can't read it.
func DeprecationOf(r *Record) *Deprecation {
	text := r.header(HeaderDeprecation)
	if len(text) == 0 {
		return nil
	}
	d := new(Deprecation)
	if json.Unmarshal(text, d) != nil {
		return nil
	}
	return d
}

// Applies reports whether the version is deprecated now.
func (d *Deprecation) Applies() bool { return d != nil && d.Deprecated }

// DeprecationView is a deprecation as it is printed.
type DeprecationView struct {
	Why string  `json:"why" jsonschema:"Why the version is deprecated."`
	By  string  `json:"by" jsonschema:"Who deprecated it, unverified."`
	At  *string `json:"at" jsonschema:"When it was deprecated."`
}

// View returns nil if the version isn't deprecated.
func (d *Deprecation) View() *DeprecationView {
	if !d.Applies() {
		return nil
	}
	return &DeprecationView{d.Why, d.By, InstantText(d.At)}
}
