package lint

import (
	"strings"
	"testing"
)

// mayImport is the table of who may import which packages of this module,
// without tests. A folder stands for itself; what isn't listed is refused until
// it is decided and written down here.
var mayImport = map[string][]string{
	"":                            {"internal/kafka", "events", "agent", "workflow"},
	"events":                      {},
	"workflow":                    {"events"},
	"projections":                 {"events"},
	"scheduler":                   {"events", "workflow", "internal/congestion", "internal/inboxgate"},
	"agent":                       {"events", "internal/watchdog"},
	"supervisor":                  {"events", "internal/watchdog"},
	"internal/kafka":              {"events", "internal/inboxgate"},
	"internal/congestion":         {},
	"internal/inboxgate":          {},
	"internal/kafka/embedded":     {"internal/kafka", "events"},
	"internal/kafka/kafkametrics": {"internal/kafka"},
	"internal/kafkatest":          {"internal/kafka", "internal/suite", "deploy/kafka/node", "events"},
	"internal/instance":           {"internal/index", "internal/kafka", "internal/kafka/kafkametrics", "projections", "scheduler", "agent", "supervisor", "internal/watchdog", "events", "workflow"},
	"internal/watchdog":              {},
	"internal/suite":              {},
	"internal/tally":              {},
	"internal/sources":            {},
	"internal/verify":             {"events"},
	"internal/replay":             {"events", "scheduler", "workflow"},
	"internal/console":            {"events", "projections", "internal/index", "internal/replay"},
	"internal/index":              {"events", "projections", "internal/watchdog"},
	"internal/golden":             {"events"},
	"internal/lint":               {},
	"internal/mutation":           {},
	"deploy/kafka":                {},
	"cmd/waybill":                 {everything},
	"internal/sim":                {everything},
	"internal/chaos":              {everything},
	"internal/chaos/point":        {"internal/instance", "scheduler", "supervisor", "agent", "events"},
	"internal/bench":              {everything},
	"internal/demo":               {"events", "workflow", "agent", "internal/verify"},
}

const everything = "*"

// roles never import one another: each is a consumer group of its own, and
// what they say to each other goes through the log.
var roles = []string{"scheduler", "agent", "supervisor"}

// onlyIn names, for a library, the folders that may import it, tests included.
var onlyIn = map[string][]string{
	"github.com/twmb/franz-go":           {"internal/kafka", "internal/kafkatest", "internal/bench", "internal/sim"},
	"github.com/cockroachdb/pebble":      {"projections", "internal/bench"},
	"github.com/goccy/go-yaml":           {"workflow", "cmd/waybill"}, // definitions; the settings file
	"cel.dev":                            {"workflow"},
	"github.com/spf13":                   {"cmd/waybill"}, // cobra, and the pflag that it is made with
	"github.com/prometheus":              {"cmd/waybill", "internal/instance", "internal/kafka/kafkametrics", "internal/console", "internal/bench"},
	"github.com/sony/gobreaker":          {"agent"},
	"github.com/HdrHistogram":            {"internal/bench"},
	"github.com/magiconair/properties":   {"internal/kafka"},
	"github.com/google/uuid":             {"", "events", "cmd/waybill", "scheduler", "agent", "supervisor", "internal"},
	"golang.org/x/term":                  {"cmd/waybill"},
	"golang.org/x/sync":                  {everything},
	"golang.org/x/text":                  {"agent/http"},     // charsets of answers
	"golang.org/x/sys":                   {"internal/chaos"}, // who waits for a child to stop
	"github.com/rogpeppe/go-internal":    {everything},
	"pgregory.net/rapid":                 {everything},
	"github.com/twmb/franz-go/pkg/kfake": {"internal/kafka", "internal/kafkatest", "internal/bench", "internal/sim"},
}

// crashableFiles are Pebble's file systems in memory: the tests of a role open a
// real store on one.
const crashableFiles = "github.com/cockroachdb/pebble/v2/vfs"

// terminals makes terminals: the tests of the commands open one, to be asked on it.
const terminals = "golang.org/x/sys"

// testOnly are libraries that no user's binary may hold.
var testOnly = []string{"pgregory.net/rapid", "github.com/rogpeppe/go-internal", "testing"}

func importFaults(f *file) []string {
	var faults []string
	for _, i := range f.ast.Imports {
		p := importPath(i)
		if own, ok := strings.CutPrefix(p, module); ok {
			if why := ownImport(f, strings.TrimPrefix(own, "/")); why != "" {
				faults = append(faults, fault(f.at(i), "%s", why))
			}
			continue
		}
		if why := libraryImport(f, p); why != "" {
			faults = append(faults, fault(f.at(i), "%s", why))
		}
	}
	return faults
}

// ownImport says why a package of this module may not be imported here.
func ownImport(f *file, target string) string {
	from := f.pkg
	for _, a := range roles {
		for _, b := range roles {
			if a != b && within(from, a) && within(target, b) {
				return "role " + a + " imports role " + b + ": roles meet on the log only. Share the words through events, or have the caller pass a small interface."
			}
		}
	}
	if f.test {
		if within(target, "cmd", "internal/lint") {
			return target + " is no library: nothing may import it."
		}
		return "" // a test may look from outside
	}
	owner, allowed := allowedImports(from)
	if owner == "" && from != "" {
		return "folder " + from + " isn't in the table of imports (internal/lint/imports_test.go): decide what it may import and write it there."
	}
	for _, a := range allowed {
		if a == everything || within(target, a) {
			return ""
		}
	}
	if within(target, owner) && owner != "" {
		return "" // a package and what is below it
	}
	return from + " may not import " + target + ": the code map allows " + strings.Join(allowed, ", ") +
		". Define the interface that is needed where it is used, and let cmd/waybill wire it."
}

// allowedImports finds the row of a folder, or of the nearest one above.
func allowedImports(folder string) (owner string, allowed []string) {
	for at := folder; ; {
		if a, ok := mayImport[at]; ok {
			return at, a
		}
		i := strings.LastIndexByte(at, '/')
		if i < 0 {
			return "", nil
		}
		at = at[:i]
	}
}

// libraryImport says why a library may not be imported here.
func libraryImport(f *file, p string) string {
	for _, lib := range testOnly {
		if !f.test && within(p, lib) && !within(f.pkg, "internal/kafkatest") {
			return p + " in a file that is no test: it would be linked into the user's binary."
		}
	}
	lib, folders := "", []string(nil)
	for l, in := range onlyIn {
		if within(p, l) && len(l) > len(lib) {
			lib, folders = l, in
		}
	}
	switch {
	case f.test && within(p, crashableFiles), f.test && f.pkg == "cmd/waybill" && lib == terminals:
		return ""
	case lib == "" && strings.Contains(strings.SplitN(p, "/", 2)[0], "."):
		return p + " is no library of this module: say in the commit why it beats writing it, and list it in internal/lint/imports_test.go with who may import it."
	case lib == "" || folders[0] == everything || within(f.pkg, folders...):
		return ""
	}
	return lib + " may be imported only in " + strings.Join(folders, ", ") + ": the rest stays free of it, to be tested without and to be changed without. Use the types of events, behind an interface of one to three methods."
}

// TestImports holds the module against the table.
func TestImports(t *testing.T) { eachFile(t, importFaults) }
