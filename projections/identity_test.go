package projections_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/projections"
)

// childDir is an environment variable that makes the test binary open a store and print the result. It is for the
// second process of TestTwoProcessesOnOneDirectory.
const childDir = "WAYBILL_TEST_OPEN_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		_, err := projections.Open(dir, identity(projections.ViewTasks), projections.Options{})
		fmt.Println(errors.Is(err, projections.ErrInUse), err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestTwoProcessesOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	s, err := projections.Open(dir, identity(projections.ViewTasks), projections.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := projections.Open(dir, identity(projections.ViewTasks), projections.Options{}); !errors.Is(err, projections.ErrInUse) {
		t.Errorf("the same process again: %v", err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "true ") || !strings.Contains(string(out), "--data-dir") {
		t.Errorf("another process: %s %v", out, err)
	}
	closeStore(t, s)
	s, err = projections.Open(dir, identity(projections.ViewTasks), projections.Options{})
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*projections.Identity)
		says   []string
	}{
		"cluster":    {func(id *projections.Identity) { id.ClusterID = "c2" }, []string{"cluster c1, not c2"}},
		"namespace":  {func(id *projections.Identity) { id.Namespace = "other." }, []string{"namespace waybill., not other."}},
		"partitions": {func(id *projections.Identity) { id.Partitions = 24 }, []string{"partition count 12, not 24"}},
		"view":       {func(id *projections.Identity) { id.View = projections.ViewDeadlines }, []string{"view tasks, not deadlines"}},
		"two": {func(id *projections.Identity) { id.ClusterID, id.Partitions = "c2", 24 },
			[]string{"cluster c1, not c2", "partition count 12, not 24"}},
		"older build": {func(id *projections.Identity) { id.Format = projections.Format - 1 - 1 }, []string{"run the newer waybill"}},
		"newer build": {func(id *projections.Identity) { id.Format = projections.Format + 1 }, []string{"older format"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := projections.Open(dir, identity(projections.ViewTasks), projections.Options{})
			if err != nil {
				t.Fatal(err)
			}
			closeStore(t, s)
			before := listing(t, dir)
			id := identity(projections.ViewTasks)
			c.change(&id)
			_, err = projections.Open(dir, id, projections.Options{})
			if !errors.Is(err, projections.ErrForeign) {
				t.Fatalf("got %v", err)
			}
			for _, says := range append(c.says, dir, "another --data-dir", "delete this one", "rebuilt from the log") {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("the refusal doesn't say %q: %v", says, err)
				}
			}
			if after := listing(t, dir); after != before {
				t.Errorf("the refusal changed the directory:\n%s\n%s", before, after)
			}
		})
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, "\n")
}

func TestForeignDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := projections.Open(dir, identity(projections.ViewTasks), projections.Options{}); !errors.Is(err, projections.ErrForeign) {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(listing(t, dir), "MANIFEST") {
		t.Fatal("Pebble was opened in it")
	}
}

func TestIdentityNamesAllFaultsAtOnce(t *testing.T) {
	_, err := projections.Open(t.TempDir(), projections.Identity{View: "x"}, projections.Options{})
	for _, says := range []string{"cluster id", "namespace", "0 partitions", `view "x"`} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v doesn't say %q", err, says)
		}
	}
}
