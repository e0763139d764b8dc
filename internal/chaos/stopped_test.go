package chaos

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// awaitStop returns when a child of this process has come to a stop: the kernel
// tells a parent when the last thread stands still. It fails if the child has
// ended, or goes on for longer than within.
func awaitStop(pid int, within time.Duration) error {
	stopped := make(chan error, 1)
	go func() {
		for {
			// WNOWAIT: it may be asked again while the child stands. Without
			// WEXITED its end is left for exec to collect, and then this
			// says that there is no such child.
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
