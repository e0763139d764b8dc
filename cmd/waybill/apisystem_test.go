package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestFindConsole: a console is found at an address only if it reports the expected system. The request carries no
// token.
func TestFindConsole(t *testing.T) {
	mine := consoleapi.System{ClusterID: "c", Namespace: "waybill."}
	for name, c := range map[string]struct {
		of    consoleapi.System
		found bool
	}{
		"of this system":       {mine, true},
		"of another cluster":   {consoleapi.System{ClusterID: "d", Namespace: "waybill."}, false},
		"of another namespace": {consoleapi.System{ClusterID: "c", Namespace: "other."}, false},
		"no console":           {consoleapi.System{}, false},
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

// TestExplainSystemError: a console of another system has an exit code according to how it was found.
func TestExplainSystemError(t *testing.T) {
	mine := consoleapi.System{ClusterID: "c", Namespace: "waybill."}
	other := consoleapi.System{ClusterID: "d", Namespace: "waybill."}
	for name, c := range map[string]struct {
		serves     consoleapi.System
		discovered bool
		code       int
		says       string
	}{
		"found":                {other, true, exitUnreachable, "belongs to another system"},
		"found, says nothing":  {consoleapi.System{}, true, exitUnreachable, "doesn't say which system"},
		"named by its address": {other, false, exitUsage, "omit --api, or omit both of them"},
	} {
		err := explainSystemError(&consoleapi.SystemError{URL: "http://c", Serves: c.serves, Meant: mine}, c.discovered)
		if codeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
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
			if _, note, code := runWaybill(t, prod.env(), args...); code != exitUsage || !strings.Contains(note, "omit --api, or omit both of them") {
				t.Errorf("%v with other brokers: exit code %d, %s", args, code, note)
			}
			if _, note, code := runWaybill(t, nil, append(args, "--namespace", "other.")...); code != exitUsage || !strings.Contains(note, "omit --api, or omit both of them") {
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
