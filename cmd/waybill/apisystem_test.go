package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestFindConsole: a console is found at an address only if it reports the expected system. The request carries no
// token.
func TestFindConsole(t *testing.T) {
	mine := console.System{ClusterID: "c", Namespace: "waybill."}
	for name, c := range map[string]struct {
		of    console.System
		found bool
	}{
		"of this system":       {mine, true},
		"of another cluster":   {console.System{ClusterID: "d", Namespace: "waybill."}, false},
		"of another namespace": {console.System{ClusterID: "c", Namespace: "other."}, false},
		"no console":           {console.System{}, false},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.of.SetHeaders(w.Header())
			if r.Header.Get("Authorization") != "" {
				t.Errorf("%s: it gets a token", name)
			}
		}))
		addr := s.Listener.Addr().String()
		if got := findConsole(t.Context(), addr, mine); (got == s.URL) != c.found || !c.found && got != "" {
			t.Errorf("%s: found %q at %s", name, got, s.URL)
		}
		s.Close()
		if got := findConsole(t.Context(), addr, mine); got != "" {
			t.Errorf("%s: %q is found where nothing listens", name, got)
		}
	}
}

// TestCheckSystem: a response is accepted according to the system that it reports.
func TestCheckSystem(t *testing.T) {
	mine := console.System{ClusterID: "c", Namespace: "waybill."}
	for name, c := range map[string]struct {
		client apiClient
		of     console.System
		code   int
	}{
		"found":                             {apiClient{discovered: true, system: mine}, mine, exitOK},
		"found, of another cluster":         {apiClient{discovered: true, system: mine}, console.System{ClusterID: "d", Namespace: "waybill."}, exitUnreachable},
		"found, of another namespace":       {apiClient{discovered: true, system: mine}, console.System{ClusterID: "c", Namespace: "other."}, exitUnreachable},
		"found, says nothing":               {apiClient{discovered: true, system: mine}, console.System{}, exitUnreachable},
		"named":                             {apiClient{}, mine, exitOK},
		"named, and nothing else":           {apiClient{}, console.System{}, exitOK},
		"named, says nothing":               {apiClient{system: mine}, console.System{}, exitOK},
		"named, brokers of another cluster": {apiClient{system: mine}, console.System{ClusterID: "d", Namespace: "waybill."}, exitUsage},
		"named, with another namespace":     {apiClient{system: console.System{Namespace: "waybill."}}, console.System{ClusterID: "d", Namespace: "other."}, exitUsage},
		"named, with its namespace":         {apiClient{system: console.System{Namespace: "waybill."}}, console.System{ClusterID: "d", Namespace: "waybill."}, exitOK},
	} {
		h := http.Header{}
		c.of.SetHeaders(h)
		err := c.client.checkSystem(h)
		if (err == nil) != (c.code == exitOK) || err != nil && codeOf(err) != c.code {
			t.Errorf("%s: %v, want exit code %d", name, err, c.code)
		}
	}
}

// TestConsoleOfAnotherSystem: a named console is refused if the command's brokers report another cluster, or if its
// namespace differs. Otherwise it is accepted.
func TestConsoleOfAnotherSystem(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	demo := startUpProcess(t, "--demo", "--listen", "127.0.0.1:0")
	url := consoleAt(t, demo.process).url
	demo.waybill(t, exitOK, "submit", "--workflow", "order", "--id", "of-demo", "--wait", "--input", `{"items":[],"total":1,"card":"tok","address":"x"}`)
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		prod := onBroker(t, b, quickWorkflow(t, "quick", "hold", 2))
		for _, args := range [][]string{{"task", "get", "of-demo"}, {"timeline", "of-demo"}, {"task", "why", "of-demo"}, {"task", "list"}} {
			args = append(args, "--api", url)
			if _, note, code := runWaybill(t, prod.env(), args...); code != exitUsage || !strings.Contains(note, "omit --api, or those") {
				t.Errorf("%v with other brokers: exit code %d, %s", args, code, note)
			}
			if _, note, code := runWaybill(t, nil, append(args, "--namespace", "other.")...); code != exitUsage || !strings.Contains(note, "omit --api, or those") {
				t.Errorf("%v with another namespace: exit code %d, %s", args, code, note)
			}
			for _, env := range [][]string{nil, {"WAYBILL_BROKERS=127.0.0.1:1"}, demo.env()} {
				if _, note, code := runWaybill(t, env, args...); code != exitOK {
					t.Errorf("%v %q: exit code %d, %s", args, env, code, note)
				}
			}
		}
	})
}
