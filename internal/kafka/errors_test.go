package kafka

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var updateFates = flag.Bool("update-fates", false, "rewrite testdata/errors.txt")

// TestFateOfEveryError checks that every error of the Kafka protocol has a class for group members. An error that a new
// Kafka version adds fails the test.
func TestFateOfEveryError(t *testing.T) {
	const file = "testdata/errors.txt"
	var b strings.Builder
	for code := int16(-1); code < 1000; code++ {
		if err, is := errors.AsType[*kerr.Error](kerr.ErrorForCode(code)); is && err.Code == code && (code == -1 || err != kerr.UnknownServerError) {
			fmt.Fprintf(&b, "%-40s %s\n", err.Message, ClassOf(fmt.Errorf("poll: %w", &kgo.ErrGroupSession{Err: err})))
		}
	}
	fmt.Fprintf(&b, "%-40s %s\n", "a client that is closed", ClassOf(kgo.ErrClientClosed))
	fmt.Fprintf(&b, "%-40s %s\n", "anything else", ClassOf(errors.New("connection refused")))
	if *updateFates {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("go test ./internal/kafka -run TestFateOfEveryError -update-fates writes\n%s", b.String())
	}
	for _, f := range errorClasses {
		if errors.Is(f.err, kgo.ErrClientClosed) {
			continue
		}
		if !strings.Contains(b.String(), fmt.Sprintf("%-40s %s\n", errorName(f.err), f.fate)) {
			t.Errorf("%v is %s in the table and something else in the file", f.err, f.fate)
		}
	}
}

func errorName(err error) string {
	ke, _ := errors.AsType[*kerr.Error](err)
	return ke.Message
}
