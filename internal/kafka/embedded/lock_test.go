package embedded

import (
	"testing"
	"testing/synctest"
)

// TestLockWaitsForADyingProcess checks that lockDir waits for the kernel to close the files of a process that was just
// killed.
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
		synctest.Wait() // the first attempt has failed
		if err := dying.Close(); err != nil {
			t.Error(err)
		}
		if err := <-locked; err != nil {
			t.Error(err)
		}
	})
}
