package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

func TestMemberAddr(t *testing.T) {
	for host, want := range map[string]string{
		"/10.0.0.1": "10.0.0.1", "c1.example/10.0.0.1": "10.0.0.1", "10.0.0.1:40000": "10.0.0.1", "/127.0.0.1": "127.0.0.1", "/0:0:0:0:0:0:0:1": "::1",
		"[::1]:40000": "::1", "/::ffff:10.0.0.1": "10.0.0.1", "/fe80::1%eth0": "fe80::1", "": "invalid IP", "c1.example": "invalid IP",
	} {
		if got := memberAddr(host).String(); got != want {
			t.Errorf("%q: %s, want %s", host, got, want)
		}
	}
}

// A loopback URL of another machine isn't asked, and is told of; what can't be told is asked, for
// answers say whose they are.
func TestPeersOf(t *testing.T) {
	here := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1")}
	const own, other, public = "http://127.0.0.1:8080", "http://127.0.0.1:8081", "https://c2.example"
	member := func(url, host string, ps ...int32) kafka.Member {
		return kafka.Member{ClientID: console.Announce(url), Host: host, Partitions: map[string][]int32{"e": ps}}
	}
	for name, c := range map[string]struct {
		here      []netip.Addr
		members   []kafka.Member
		urls      string
		elsewhere string // host of
	}{
		"two on this machine":              {here, []kafka.Member{member(own, "/10.0.0.1", 0), member(other, "/127.0.0.1", 1)}, "0 8080, 1 8081", ""},
		"one elsewhere":                    {here, []kafka.Member{member(own, "/10.0.0.1", 0), member(other, "/10.0.0.2", 1)}, "0 8080", "/10.0.0.2"},
		"one elsewhere, with the same URL": {here, []kafka.Member{member(own, "/10.0.0.1", 0), member(own, "/10.0.0.2", 1)}, "0 8080", "/10.0.0.2"},
		"one elsewhere that others reach":  {here, []kafka.Member{member(own, "/10.0.0.1", 0), member(public, "/10.0.0.2", 1)}, "0 8080, 1 c2.example", ""},
		"seen at an address of a gateway":  {here, []kafka.Member{member(own, "/10.9.9.9", 0), member(other, "/10.9.9.9", 1)}, "0 8080, 1 8081", ""},
		"seen at none":                     {here, []kafka.Member{member(own, "", 0), member(other, "x", 1)}, "0 8080, 1 8081", ""},
		"nothing is known of here":         {nil, []kafka.Member{member(own, "/10.0.0.1", 0), member(other, "/10.0.0.2", 1)}, "0 8080, 1 8081", ""},
		"no console":                       {here, []kafka.Member{{ClientID: "waybill", Host: "/10.0.0.2", Partitions: map[string][]int32{"e": {0}}}}, "", ""},
	} {
		urls, elsewhere := peersOf(own, c.here, c.members, "e")
		var got []string
		for p := range int32(3) {
			if urls[p] != "" {
				got = append(got, fmt.Sprint(p, " ", urls[p][strings.LastIndexAny(urls[p], ":/")+1:]))
			}
		}
		if strings.Join(got, ", ") != c.urls || (elsewhere == nil) != (c.elsewhere == "") || elsewhere != nil && elsewhere.Host != c.elsewhere {
			t.Errorf("%s: %v, and elsewhere %+v", name, got, elsewhere)
		}
	}
}

// What answers counts by the system that it says it is of.
func TestCheckSystem(t *testing.T) {
	mine := console.System{ClusterID: "c", Namespace: "waybill."}
	for name, c := range map[string]struct {
		client apiClient
		of     console.System
		code   int
	}{
		"found":                             {apiClient{found: true, system: mine}, mine, exitOK},
		"found, of another cluster":         {apiClient{found: true, system: mine}, console.System{ClusterID: "d", Namespace: "waybill."}, exitUnreachable},
		"found, of another namespace":       {apiClient{found: true, system: mine}, console.System{ClusterID: "c", Namespace: "other."}, exitUnreachable},
		"found, says nothing":               {apiClient{found: true, system: mine}, console.System{}, exitUnreachable},
		"named":                             {apiClient{}, mine, exitOK},
		"named, and nothing else":           {apiClient{}, console.System{}, exitOK},
		"named, says nothing":               {apiClient{system: mine}, console.System{}, exitOK},
		"named, brokers of another cluster": {apiClient{system: mine}, console.System{ClusterID: "d", Namespace: "waybill."}, exitUsage},
		"named, with another namespace":     {apiClient{system: console.System{Namespace: "waybill."}}, console.System{ClusterID: "d", Namespace: "other."}, exitUsage},
		"named, with its namespace":         {apiClient{system: console.System{Namespace: "waybill."}}, console.System{ClusterID: "d", Namespace: "waybill."}, exitOK},
	} {
		h := http.Header{}
		c.of.Mark(h)
		err := c.client.checkSystem(h)
		if (err == nil) != (c.code == exitOK) || err != nil && codeOf(err) != c.code {
			t.Errorf("%s: %v, want exit code %d", name, err, c.code)
		}
	}
}

// The tools take what answers at an announced URL for theirs only if it is of the same system: at a
// loopback URL of another machine a demo may answer.
func TestConsoleOfAnotherSystem(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	demo := startUpProcess(t, "--demo", "--listen", "127.0.0.1:0")
	url := consoleAt(t, demo.process).url
	demo.waybill(t, exitOK, "submit", "--workflow", "order", "--id", "of-demo", "--wait", "--input", `{"items":[],"total":1,"card":"tok","address":"x"}`)
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		prod := onBroker(t, b, quickWorkflow(t, "quick", "hold", 2))
		prod.start(t, "scheduler", "--session-timeout", shortSession)
		c := prod.start(t, "console", "--listen", "127.0.0.1:0", "--advertise", url, "--session-timeout", shortSession)
		c.await(t, "console  http")
		prod.waybill(t, exitOK, "submit", "--workflow", "quick", "--id", "of-prod", "--input", `{"items":[],"total":1,"card":"tok","address":"x"}`)
		consoleOfAnotherSystem(t, prod, demo, url)
	})
}

func consoleOfAnotherSystem(t *testing.T, prod *system, demo *upSystem, url string) {
	for _, tool := range [][]string{{"task", "get"}, {"task", "why"}, {"timeline"}, {"replay"}} {
		var note string
		code := exitNotFound
		for deadline := time.Now().Add(patience); code == exitNotFound && time.Now().Before(deadline); { // until a scheduler has it
			_, note, code = runWaybill(t, prod.env(), append(tool, "of-prod")...)
		}
		if code != exitOK || !strings.Contains(note, "reading the log") || !strings.Contains(note, "another system") {
			t.Errorf("%v: exit code %d, %s", tool, code, note)
		}
		if _, note, code := runWaybill(t, prod.env(), append(tool, "of-demo")...); code != exitNotFound {
			t.Errorf("%v of a task of another system: exit code %d, %s", tool, code, note)
		}
	}
	if list := prod.waybill(t, exitOK, "task", "list"); !strings.Contains(list, "of-prod") || strings.Contains(list, "of-demo") {
		t.Errorf("task list:\n%s", list)
	}
	prod.waybill(t, exitOK, "alerts")
	prod.waybill(t, exitOK, "deadletters")
	prod.waybill(t, exitUnreachable, "top", "--once")

	// One that is named is believed, but where the command knows better.
	for _, args := range [][]string{{"task", "get", "of-demo"}, {"timeline", "of-demo"}, {"task", "why", "of-demo"}, {"task", "list"}} {
		args = append(args, "--api", url)
		if _, note, code := runWaybill(t, prod.env(), args...); code != exitUsage || !strings.Contains(note, "answers for") {
			t.Errorf("%v with other brokers: exit code %d, %s", args, code, note)
		}
		if _, note, code := runWaybill(t, nil, append(args, "--namespace", "other.")...); code != exitUsage || !strings.Contains(note, "answers for") {
			t.Errorf("%v with another namespace: exit code %d, %s", args, code, note)
		}
		for _, env := range [][]string{nil, {"WAYBILL_BROKERS=127.0.0.1:1"}, demo.env()} {
			if _, note, code := runWaybill(t, env, args...); code != exitOK {
				t.Errorf("%v %q: exit code %d, %s", args, env, code, note)
			}
		}
	}
}
