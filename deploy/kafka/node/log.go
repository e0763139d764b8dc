package node

import (
	"os"
	"strings"
)

// logErrorLinesMax bounds the log lines that an error quotes.
const logErrorLinesMax = 12

// LogErrors returns the last lines of a log that have level ERROR or FATAL or name an exception. If there are none, it
// returns the last lines.
func LogErrors(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	var bad []string
	for _, line := range all {
		frame := strings.HasPrefix(line, "\tat ")
		if !frame && (strings.Contains(line, " ERROR ") || strings.Contains(line, " FATAL ") || strings.Contains(line, "Exception")) {
			bad = append(bad, line)
		}
	}
	if len(bad) == 0 {
		bad = all
	}
	return strings.Join(bad[max(0, len(bad)-logErrorLinesMax):], "\n")
}
