package console

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/waybill-run/waybill/events"
)

// A URL doesn't identify a system: a loopback URL leads to a different console on each machine. So every answer
// names its system in headers. A request can name the system that it is meant for in the same headers, and a
// console of another system rejects it.
const (
	clusterHeader   = "Waybill-Cluster"
	namespaceHeader = "Waybill-Namespace"
)

// System is what a console serves: a namespace of a Kafka cluster. Empty fields are unknown.
type System struct {
	ClusterID string
	Namespace events.Namespace
}

func (s System) String() string {
	return fmt.Sprintf("namespace %s of cluster %s", printable(cmp.Or(string(s.Namespace), "?")), printable(cmp.Or(s.ClusterID, "?")))
}

// SetHeaders names the system in the headers of a request or an answer, as far as it is known.
func (s System) SetHeaders(h http.Header) {
	if s.ClusterID != "" {
		h.Set(clusterHeader, s.ClusterID)
	}
	if s.Namespace != "" {
		h.Set(namespaceHeader, string(s.Namespace))
	}
}

// SystemOf returns the system that headers name; zero: none.
func SystemOf(h http.Header) System {
	return System{h.Get(clusterHeader), events.Namespace(h.Get(namespaceHeader))}
}

// Differs reports whether two systems are known to be different.
func (s System) Differs(o System) bool {
	return s.ClusterID != "" && o.ClusterID != "" && s.ClusterID != o.ClusterID || s.Namespace != "" && o.Namespace != "" && s.Namespace != o.Namespace
}

// system returns the system of the console.
func (c *Console) system() System { return System{c.cfg.ClusterID, c.cfg.Namespace} }

// checkSystem rejects requests that are meant for another system.
func (c *Console) checkSystem(r *http.Request) error {
	if meant := SystemOf(r.Header); meant.Differs(c.system()) {
		return otherSystem("this console serves %s, but the request is for %s", c.system(), meant)
	}
	return nil
}
