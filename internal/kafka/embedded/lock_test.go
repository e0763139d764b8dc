package embedded

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
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

// lockedDir is the environment variable that makes the test binary lock a directory on a disk that refuses writes.
const lockedDir = "WAYBILL_TEST_LOCKED_DIR"

// TestFailedLockKeepsTheUncleanShutdown checks that a start that can't write its pid doesn't make an unclean shutdown
// look clean, nor a clean one unclean. The disk is full in a process of its own, because the limit is per process.
func TestFailedLockKeepsTheUncleanShutdown(t *testing.T) {
	if dir := os.Getenv(lockedDir); dir != "" {
		lockOnAFullDisk(t, dir)
		return
	}
	for _, tt := range []struct {
		name, holder string
		clean        bool
	}{
		{"killed", "pid 1234567890\n", false},
		{"closed", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, lockFile), []byte(tt.holder), 0o600); err != nil {
				t.Fatal(err)
			}
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFailedLockKeepsTheUncleanShutdown$")
			child.Env = append(os.Environ(), lockedDir+"="+dir)
			if out, err := child.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			f, clean, err := lockDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if clean != tt.clean {
				t.Errorf("clean is %v, want %v", clean, tt.clean)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// lockOnAFullDisk fails if lockDir succeeds in a process that may not write to files.
func lockOnAFullDisk(t *testing.T, dir string) {
	signal.Ignore(syscall.SIGXFSZ) // then a write fails with EFBIG
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{}); err != nil {
		t.Fatal(err)
	}
	f, _, err := lockDir(dir)
	if err == nil {
		t.Fatal("locked a directory on a full disk", f.Close())
	}
}
