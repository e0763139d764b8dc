package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// BenchmarkAPI measures responses about the recorded system, without the network. BenchmarkList of projections has a
// store with any number of tasks.
func BenchmarkAPI(b *testing.B) {
	w := newRecording(b)
	c := w.console(b, someTokens(b)).Config.Handler
	task := url.PathEscape(w.some(b, events.StateUndone).ID)
	for _, bb := range []struct{ name, path string }{
		{"list", "/tasks?filter=" + url.QueryEscape("state:processed")}, {"task", "/tasks/" + task}, {"timeline", "/tasks/" + task + "/timeline"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodGet, api+bb.path, nil)
				r.Header.Set("Authorization", "Bearer "+viewerToken)
				answer := httptest.NewRecorder()
				if c.ServeHTTP(answer, r); answer.Code != http.StatusOK {
					b.Fatalf("%s: %d %s", bb.path, answer.Code, answer.Body)
				}
			}
		})
	}
}
