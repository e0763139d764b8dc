package lint

import (
	"os/exec"
	"strings"
	"testing"
)

// library are the packages that other programs import.
var library = []string{".", "./agent/...", "./events", "./workflow"}

// binaryOnly are libraries that cmd/waybill links and that importing the library must not link: kfake is meant
// for tests, and programs choose their own metrics and stores.
var binaryOnly = []string{"github.com/twmb/franz-go/pkg/kfake", "github.com/twmb/franz-go/plugin/kprom", "github.com/prometheus", "github.com/cockroachdb/pebble", "github.com/spf13",
	"github.com/twmb/avro", "github.com/twmb/franz-go/pkg/sr"}

func TestLibraryLinksNoBroker(t *testing.T) {
	linked, binary := dependencies(t, library...), dependencies(t, "./cmd/waybill")
	for _, lib := range binaryOnly {
		if len(below(lib, binary)) == 0 {
			t.Errorf("cmd/waybill doesn't link %s, so the check is without effect; remove it", lib)
		}
	}
	for _, lib := range append(binaryOnly, testOnly...) {
		if found := below(lib, linked); len(found) > 0 {
			t.Errorf("a program that imports %s links %s: it would be in every user's binary. "+
				"Keep it below a package that only cmd/waybill imports, as internal/kafka/embedded and internal/kafka/kafkametrics are.",
				module, strings.Join(found, ", "))
		}
	}
}

// dependencies returns all packages that are linked with packages of this module.
func dependencies(t *testing.T, packages ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps"}, packages...)...)
	cmd.Dir = root
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &complaint)
	}
	return strings.Fields(string(out))
}

func below(lib string, packages []string) []string {
	var found []string
	for _, p := range packages {
		if within(p, lib) {
			found = append(found, p)
		}
	}
	return found
}
