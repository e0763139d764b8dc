package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
)

// exportedFile writes a file of the recorded history.
func exportedFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "all.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := replay.NewWriter(f, replay.Head{Namespace: "shop.", Partitions: 2})
	for i, r := range history(t, "shop.") {
		r.Offset = int64(2 * i)
		if err := w.Write(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.End(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// startView starts waybill view on a free port. It returns the console's URL, and a function that interrupts it.
func startView(t *testing.T, args ...string) (url string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	root := newRoot()
	root.SetArgs(append([]string{"view", "--listen", "127.0.0.1:0"}, args...))
	root.SetOut(in)
	root.SetErr(io.Discard)
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = in.CloseWithError(errors.Join(err, io.EOF))
		ended <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "console")), func() error {
		cancel()
		return <-ended
	}
}

func viewed(t *testing.T, method, url string, headers ...string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(`{"reason":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// TestView: an exported file is served as a console, without a broker. Nobody can write to it, and pages of other origins
// can't read it.
func TestView(t *testing.T) {
	path := exportedFile(t)
	url, stop := startView(t, path, "--workflow", "../../workflow/order.yaml")
	api := url + consoleapi.Prefix
	for _, get := range []string{"", "/tasks", "/tasks/edited", "/tasks/edited/timeline", "/tasks/edited/why", "/tasks/edited/states?seq=2", "/tasks/edited/chain", "/tasks/edited/commands",
		"/tasks/edited/graph", "/tasks/edited/events", "/tasks/edited/export", "/workflows", "/workflows/order/1", "/agents", "/partitions", "/alerts", "/deadletters", "/openapi.json"} {
		if status, body := viewed(t, http.MethodGet, map[bool]string{true: url + "/", false: api + get}[get == ""]); status != http.StatusOK || body == "" {
			t.Errorf("GET %s: %d %.200s", get, status, body)
		}
	}
	var me consoleapi.WhoAmI
	_, body := viewed(t, http.MethodGet, api+"/whoami")
	if err := json.Unmarshal([]byte(body), &me); err != nil || me.File != path || me.ReadOnly == "" || me.Role != "viewer" {
		t.Errorf("%s: %v", body, err)
	}
	for _, post := range []string{"/tasks", "/tasks/edited/undo", "/tasks/edited/cancel", "/tasks/edited/signals/x"} {
		if status, body := viewed(t, http.MethodPost, api+post); status != http.StatusForbidden || !strings.Contains(body, "it serves the file") {
			t.Errorf("POST %s: %d %s", post, status, body)
		}
	}
	if status, _ := viewed(t, http.MethodGet, api+"/tasks", "Host: evil.example"); status != http.StatusMisdirectedRequest {
		t.Errorf("another host is answered with %d", status)
	}
	if status, _ := viewed(t, http.MethodGet, api+"/tasks", "Origin: http://evil.example"); status != http.StatusForbidden {
		t.Errorf("another origin is answered with %d", status)
	}
	if err := stop(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
}

// TestViewRefuses: what isn't an export, and an address that other machines reach, are usage faults.
func TestViewRefuses(t *testing.T) {
	path := exportedFile(t)
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"loopback only", []string{path, "--listen", "0.0.0.0:0"}},
		{"loopback only", []string{path, "--listen", ":0"}},
		{"not a file", []string{filepath.Join(t.TempDir(), "none.jsonl")}},
		{"not a file", []string{t.TempDir()}},
		{"needs a file", nil},
		{"can't be used", []string{path, "--workflow", path}},
		{"not what `waybill export` writes", []string{"../../workflow/order.yaml"}},
	} {
		root := newRoot()
		root.SetArgs(append([]string{"view"}, tt.args...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.args, err, tt.want)
		}
	}
}
