package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Platforms probe a console by the pod's address and without a token. Other requests need a token.
func TestProbesNeedNoToken(t *testing.T) {
	tokens, err := ParseTokens(strings.NewReader("viewer vera 0123456789abcdef0123\n"))
	if err != nil {
		t.Fatal(err)
	}
	health := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(r.URL.Path))
	})
	c := New(Config{Tokens: tokens, Health: health})
	defer c.Close()
	for _, path := range []string{"/healthz", "/readyz", "/startupz"} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://10.0.0.7:8080"+path, nil))
		if w.Code != http.StatusServiceUnavailable || w.Body.String() != path {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://10.0.0.7:8080/api/v1/tasks", nil))
	if w.Code != http.StatusUnauthorized {
		t.Errorf("tasks without a token: %d %s", w.Code, w.Body)
	}
}
