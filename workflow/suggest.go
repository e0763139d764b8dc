package workflow

import (
	"strings"

	"github.com/waybill-run/waybill/internal/text"
)

// suggest returns a fix for an unknown name. It names the nearest known name if that is near enough. Otherwise it lists
// the known names if they are few.
func suggest(name string, known []string) string {
	const few = 12
	best := text.Nearest(name, known)
	switch {
	case best != "":
		return "did you mean " + best + "?"
	case len(known) == 0:
		return ""
	case len(known) <= few:
		return "known are " + strings.Join(known, ", ")
	}
	return ""
}
