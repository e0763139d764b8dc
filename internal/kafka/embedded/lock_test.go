package embedded

import (
	"testing"
	"testing/synctest"
)

// A directory whose process was killed a moment ago isn't refused: it is waited for until the kernel has closed its
// files.
func TestLockWaitsForADyingProcess(t *testing.T) {
	dir := t.TempDir()
	dying, _, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		locked := make(chan error, 1)
		go func() {
			f, _, err := lockDir(dir)
			if err == nil {
				err = f.Close()
			}
			locked <- err
		}()
		synctest.Wait() // it has tried
		if err := dying.Close(); err != nil {
			t.Error(err)
		}
		if err := <-locked; err != nil {
			t.Error(err)
		}
	})
}
