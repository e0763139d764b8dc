package console

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/waybill-run/waybill/events"
)

// A URL doesn't say whose console answers at it: one of loopback leads to another console on each
// machine. So every answer names the system that it is of, in headers, and a question can name the
// system that it is meant for in the same headers: a console of another one refuses it.
const (
	clusterHeader   = "Waybill-Cluster"
	namespaceHeader = "Waybill-Namespace"
)

// System is what a console answers for: a namespace of a Kafka cluster. What is empty isn't known.
type System struct {
	ClusterID string
	Namespace events.Namespace
}

func (s System) String() string {
	return fmt.Sprintf("namespace %s of cluster %s", printable(cmp.Or(string(s.Namespace), "?")), printable(cmp.Or(s.ClusterID, "?")))
}

// Mark names the system in the headers of a question or an answer, as far as it is known.
func (s System) Mark(h http.Header) {
	if s.ClusterID != "" {
		h.Set(clusterHeader, s.ClusterID)
	}
	if s.Namespace != "" {
		h.Set(namespaceHeader, string(s.Namespace))
	}
}

// Marked is the system that headers name; zero: none.
func Marked(h http.Header) System {
	return System{h.Get(clusterHeader), events.Namespace(h.Get(namespaceHeader))}
}

// Differs reports whether it is known that two aren't the same.
func (s System) Differs(o System) bool {
	return s.ClusterID != "" && o.ClusterID != "" && s.ClusterID != o.ClusterID || s.Namespace != "" && o.Namespace != "" && s.Namespace != o.Namespace
}

// system is that of the console.
func (c *Console) system() System { return System{c.cfg.ClusterID, c.cfg.Namespace} }

// guardSystem refuses what is meant for another system.
func (c *Console) guardSystem(r *http.Request) error {
	if meant := Marked(r.Header); meant.Differs(c.system()) {
		return otherSystem("this console answers for %s, and it is asked for %s", c.system(), meant)
	}
	return nil
}
