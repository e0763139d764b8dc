package console

import (
	"net/http"

	"github.com/waybill-run/waybill/internal/consoleapi"
)

// system returns the system of the console.
func (c *Console) system() consoleapi.System {
	return consoleapi.System{ClusterID: c.cfg.ClusterID, Namespace: c.cfg.Namespace}
}

// checkSystem rejects requests that are meant for another system.
func (c *Console) checkSystem(r *http.Request) error {
	if meant := consoleapi.SystemOf(r.Header); meant.Differs(c.system()) {
		return otherSystem("this console serves %s, but the request is for %s", c.system(), meant)
	}
	return nil
}
