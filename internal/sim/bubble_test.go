//go:build !synctests

package sim

import (
	"flag"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/sources"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestSeeds builds these tests with the tag synctests and runs them. With the tag, the locks of franz-go are channels.
// In a bubble, virtual time stops while a goroutine waits for a mutex, and the client holds some of its mutexes until a
// response arrives.
func TestSeeds(t *testing.T) {
	suite.NeedAll(t, "a simulated system")
	inBubble(t, "^TestSeeds$")
}

// TestFlow runs in the same way.
func TestFlow(t *testing.T) {
	suite.NeedAll(t, "a simulated overload")
	inBubble(t, "^TestFlow$")
}

func inBubble(t *testing.T, tests string) {
	t.Helper()
	if err := sources.Open("../.."); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "sim.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-tags", "synctests", "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build with -tags synctests: %v\n%s", err, out)
	}
	args := []string{"-test.run=" + tests, "-test.v"}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") || f.Name == "test.timeout" {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("the simulation: %v", err)
	}
}
