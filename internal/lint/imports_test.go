package lint

import (
	"strings"
	"testing"
)

// mayImport lists the packages of this module that each folder may import, without tests. depguard
// (.golangci.yml) checks imports of libraries and between roles. A folder that isn't listed is an error, so
// that its imports are decided here.
var mayImport = map[string][]string{
	"":                               {"internal/consoleapi", "internal/kafka", "internal/logclient", "events", "agent", "workflow"},
	"events":                         {"internal/jsonscan"},
	"workflow":                       {"internal/jsonscan", "internal/text", "events"},
	"projections":                    {"events", "internal/listener"},
	"scheduler":                      {"events", "workflow", "internal/congestion", "internal/inboxgate", "internal/listener", "internal/backoff", "internal/text"},
	"agent":                          {"events", "internal/listener", "internal/watchdog", "internal/backoff"},
	"supervisor":                     {"events", "internal/listener", "internal/watchdog", "internal/backoff"},
	"internal/kafka":                 {"internal/kafka/brokerclock", "internal/backoff", "internal/inboxgate", "events"},
	"internal/kafka/agentsession":    {"internal/kafka", "internal/kafka/groupmember", "internal/kafka/kafkaadmin", "internal/kafka/brokerclock", "internal/backoff", "internal/listener", "internal/inboxgate", "events"},
	"internal/kafka/brokerclock":     {"events", "internal/backoff"},
	"internal/congestion":            {},
	"internal/inboxgate":             {},
	"internal/kafka/embedded":        {"internal/kafka", "internal/kafka/logreader", "events"},
	"internal/kafka/schedulerworker": {"internal/kafka", "internal/kafka/brokerclock", "internal/kafka/groupmember", "internal/backoff", "internal/listener", "internal/inboxgate", "events"},
	"internal/kafka/groupmember":     {"internal/kafka", "internal/inboxgate"},
	"internal/kafka/logreader":       {"internal/kafka", "internal/kafka/brokerclock", "internal/kafka/groupmember", "internal/backoff", "internal/listener", "events"},
	"internal/kafka/kafkaadmin":      {"internal/kafka", "internal/kafka/groupmember", "internal/kafka/logreader", "internal/backoff", "events"},
	"internal/kafka/kafkametrics":    {"internal/kafka"},
	"internal/kafkatest":             {"internal/kafka", "internal/backoff", "internal/suite", "deploy/kafka/node", "events"},
	"internal/instance":              {"internal/index", "internal/intake", "internal/intakerun", "internal/kafka", "internal/kafka/kafkametrics", "internal/backoff", "projections", "scheduler", "agent", "supervisor", "internal/watchdog", "internal/schedule", "internal/schedulerun", "events", "workflow"},
	"internal/backoff":               {},
	"internal/listener":              {},
	"internal/watchdog":              {},
	"internal/suite":                 {},
	"internal/batch":                 {"events"},
	"internal/batchrun":              {"internal/batch", "internal/kafka", "internal/backoff", "internal/topicowner", "events"},
	"internal/schedule":              {"events", "workflow"},
	"internal/schedulerun":           {"internal/schedule", "internal/kafka", "internal/topicowner", "events"},
	"internal/topicowner":            {"internal/kafka", "internal/backoff", "events"},
	"internal/intake":                {"internal/jsonscan", "events", "workflow"},
	"internal/intakerun":             {"internal/intake", "internal/kafka", "internal/registry", "internal/backoff", "internal/inboxgate", "internal/listener", "events"},
	"internal/schemaregistry":        {"internal/jsonscan", "events"},
	"internal/tally":                 {},
	"internal/sources":               {},
	"internal/verify":                {"events"},
	"internal/replay":                {"internal/text", "events", "scheduler", "workflow"},
	"internal/graph":                 {},
	"internal/graph/steps":           {"internal/graph", "events", "workflow"},
	"internal/workflowtest":          {"events", "scheduler", "supervisor", "workflow", "internal/text"},
	"internal/local":                 {"internal/instance", "internal/kafka", "internal/kafka/embedded", "internal/registry", "projections", "agent", "events", "workflow"},
	"internal/redrive":               {"internal/text", "events"},
	"internal/registry":              {"internal/kafka", "events", "scheduler", "workflow"},
	"internal/console/onkafka":       {"internal/console", "internal/consoleapi", "internal/instance", "internal/kafka", "internal/logclient", "internal/registry", "internal/replay", "internal/schedule", "internal/schedulerun", "internal/intake", "internal/intakerun", "scheduler", "agent", "events", "workflow"},
	"internal/doctor":                {"internal/batch", "internal/intake", "internal/intakerun", "internal/kafka", "internal/backoff", "internal/registry", "internal/schedule", "internal/schedulerun", "internal/text", "agent", "events"},
	"internal/text":                  {},
	"internal/jsonscan":              {},
	"internal/logclient":             {"events", "internal/consoleapi", "internal/kafka", "internal/backoff", "internal/text"},
	"internal/console":               {"events", "projections", "internal/consoleapi", "internal/index", "internal/batch", "internal/schedule", "internal/intake", "internal/redrive", "internal/replay", "internal/verify", "internal/graph", "scheduler", "workflow", "internal/text"},
	"internal/consoleapi":            {"events", "internal/backoff", "internal/batch", "internal/graph", "internal/redrive"},
	"internal/index":                 {"events", "projections", "internal/watchdog"},
	"internal/golden":                {"events"},
	"internal/lint":                  {},
	"internal/mutation":              {},
	"deploy/kafka":                   {},
	"cmd/waybill":                    {everything},
	"internal/sim":                   {everything},
	"internal/chaos":                 {everything},
	"internal/chaos/point":           {"internal/instance", "scheduler", "supervisor", "agent", "events"},
	"internal/bench":                 {everything},
	"internal/demo":                  {"events", "workflow", "agent", "internal/verify", "internal/text"},
}

const everything = "*"

// testOnly are libraries that must not be linked into a user's binary.
var testOnly = []string{"pgregory.net/rapid", "github.com/rogpeppe/go-internal", "testing"}

func importFaults(f *file) []string {
	var faults []string
	for _, i := range f.ast.Imports {
		p := importPath(i)
		if own, ok := strings.CutPrefix(p, module); ok {
			if why := ownImport(f, strings.TrimPrefix(own, "/")); why != "" {
				faults = append(faults, fault(f.at(i), "%s", why))
			}
		}
	}
	return faults
}

// ownImport returns why a file may not import a package of this module; "": it may.
func ownImport(f *file, target string) string {
	from := f.pkg
	if f.test {
		return "" // external tests may import more
	}
	owner, allowed := allowedImports(from)
	if owner == "" && from != "" {
		return "folder " + from + " isn't in the table of imports (internal/lint/imports_test.go): decide what it may import and write it there."
	}
	for _, a := range allowed {
		// A folder stands for all packages below it, but not among these themselves.
		if a == everything || target == a || within(target, a) && !within(from, a) {
			return ""
		}
	}
	if within(target, owner) && owner != "" {
		return "" // a package may import packages below it
	}
	return from + " may not import " + target + ": the code map allows " + strings.Join(allowed, ", ") +
		". Define the interface that is needed where it is used, and let cmd/waybill wire it."
}

// allowedImports returns the row of a folder, or of its nearest listed parent.
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

// TestImports checks the module against mayImport.
func TestImports(t *testing.T) { eachFile(t, importFaults) }
