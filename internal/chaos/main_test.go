package chaos

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/waybill-run/waybill/internal/kafkatest"
)

// systemsAtOnce is how many systems of processes run in parallel unless -parallel says otherwise. They mostly wait for
// timeouts.
const systemsAtOnce = 6

func TestMain(m *testing.M) {
	childMain() // doesn't return if this process is a child
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		if err := f.Value.Set(fmt.Sprint(systemsAtOnce)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	kafkatest.Main(m)
}
