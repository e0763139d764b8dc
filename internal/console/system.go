package console

import "net/http"

// system returns the system of the console.
func (c *Console) system() System {
	return System{ClusterID: c.cfg.ClusterID, Namespace: c.cfg.Namespace}
}

// checkSystem rejects requests that are meant for another system.
func (c *Console) checkSystem(r *http.Request) error {
	if meant := SystemOf(r.Header); meant.Differs(c.system()) {
		return otherSystem("this console serves %s, but the request is for %s", c.system(), meant)
	}
	return nil
}
