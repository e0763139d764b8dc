package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestRevokedRightsEndTheirProcesses: if a role's principal loses its rights, the role ends and says why.
func TestRevokedRightsEndTheirProcesses(t *testing.T) {
	t.Parallel() // it has a cluster of its own
	by := guarded(t)
	create := []string{"topics", "create", "--partitions", "1", "--agent-partitions", "1"}
	for _, name := range demo.ServiceNames {
		create = append(create, "--agent", name)
	}
	by["admin"].waybill(t, exitOK, create...)
	running := map[string]*process{
		"scheduler":  by["scheduler"].start(t, "scheduler", "--session-timeout", shortSession),
		"supervisor": by["supervisor"].start(t, "supervisor", "--session-timeout", shortSession),
		"agent":      by["agent"].start(t, "agent", "http", "--agent", "payments", "--url", "http://127.0.0.1:1/{operation}", "--session-timeout", shortSession),
	}
	for user := range running {
		by["root"].broker.RevokeAll(t, user)
	}
	timeout := time.After(suite.Patience)
	for user, p := range running {
		select {
		case <-p.ended:
		case <-timeout:
			t.Fatalf("%s has no rights any more, and goes on", user)
		}
		var ended *exec.ExitError
		if !errors.As(p.err, &ended) || ended.ExitCode() != exitOther {
			t.Errorf("%s ended with %v, want exit code %d", user, p.err, exitOther)
		}
		if said := p.out.tail(5); !strings.Contains(said, "ACLs") {
			t.Errorf("%s doesn't say what to check:\n%s", user, said)
		}
	}
}
