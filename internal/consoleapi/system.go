package consoleapi

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"github.com/waybill-run/waybill/events"
)

// A URL doesn't identify a system: a loopback URL leads to a different console on each machine. So every answer
// names its system in headers. A request can name the system that it is meant for in the same headers, and a
// console of another system rejects it.
const (
	ClusterHeader   = "Waybill-Cluster"
	NamespaceHeader = "Waybill-Namespace"
)

// System is what a console serves: a namespace of a Kafka cluster. Empty fields are unknown.
type System struct {
	ClusterID string
	Namespace events.Namespace
}

func (s System) String() string {
	return fmt.Sprintf("namespace %s of cluster %s", Printable(cmp.Or(string(s.Namespace), "?")), Printable(cmp.Or(s.ClusterID, "?")))
}

// SetHeaders names the system in the headers of a request or an answer, as far as it is known.
func (s System) SetHeaders(h http.Header) {
	if s.ClusterID != "" {
		h.Set(ClusterHeader, s.ClusterID)
	}
	if s.Namespace != "" {
		h.Set(NamespaceHeader, string(s.Namespace))
	}
}

// SystemOf returns the system that headers name; zero: none.
func SystemOf(h http.Header) System {
	return System{h.Get(ClusterHeader), events.Namespace(h.Get(NamespaceHeader))}
}

// Differs reports whether two systems are known to be different.
func (s System) Differs(o System) bool {
	return s.ClusterID != "" && o.ClusterID != "" && s.ClusterID != o.ClusterID || s.Namespace != "" && o.Namespace != "" && s.Namespace != o.Namespace
}

// Printable replaces what isn't printable in a text of others, and cuts it to 200 bytes, for a message of one line.
func Printable(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most]
	}
	return Visible(s)
}

// Visible returns a text with a space in the place of each character that a terminal or a browser could obey: control
// characters, and those that change the direction of writing.
func Visible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}
