package chaos

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// awaitStop returns when a child of this process is stopped. The kernel notifies a parent when the last thread has
// stopped. awaitStop fails if the child has ended, or isn't stopped within the given time.
func awaitStop(pid int, within time.Duration) error {
	stopped := make(chan error, 1)
	go func() {
		for {
			// With WNOWAIT the status can be read again while the child is stopped. Without WEXITED the exit status is
			// left for os/exec. If exec has collected it, Waitid fails with ECHILD.
			err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				stopped <- err
				return
			}
		}
	}()
	select {
	case err := <-stopped:
		if err != nil {
			return fmt.Errorf("wait for process %d to stop: %w", pid, err)
		}
		return nil
	case <-time.After(within):
		return fmt.Errorf("process %d runs on after %v", pid, within)
	}
}
