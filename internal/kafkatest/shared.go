package kafkatest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/deploy/kafka/node"
)

const (
	// hostEnv names the folder in a host process's environment.
	hostEnv = "WAYBILL_KAFKATEST_HOST"
	// hostAnswerFd is the first of exec.Cmd's ExtraFiles: the pipe on which
	// the host tells the address.
	hostAnswerFd = 3
	// lingerDuration is how long the shared broker stays up when nobody uses
	// it: go test runs packages one after the other, with gaps.
	lingerDuration = 5 * time.Second
)

// mainCalled says that Main runs, without which there is no host.
var mainCalled bool

// Main runs the tests of a package that asks for Kafka; its TestMain calls
// it. The last line that it prints says whether real Kafka took part (go test
// shows it with -v, or when the package fails).
func Main(m *testing.M) {
	if dir := os.Getenv(hostEnv); dir != "" {
		syscall.CloseOnExec(hostAnswerFd) // or Kafka would keep it open
		if err := host(dir, os.NewFile(hostAnswerFd, "answer")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	mainCalled = true
	code := m.Run()
	fmt.Println(&used)
	printToGoCommand()
	os.Exit(code)
}

// RunParallel has at least n of a package's parallel tests run at once, unless -parallel says otherwise: go test
// runs as many as there are processors, and tests that wait for brokers, for members that are given up and for
// times that must pass leave those idle. TestMain calls it before Main.
func RunParallel(n int) {
	const name = "test.parallel"
	flag.Parse()
	asked := runtime.GOMAXPROCS(0) >= n
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == name })
	if asked {
		return
	}
	if err := flag.Set(name, strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

// printToGoCommand prints the closing line where the go command prints, too: with a
// list of packages it keeps to itself what those that pass have said, and
// whether the real broker's half ran is nothing to keep. Where that isn't the
// parent process, or can't be written to, the line above has to do.
func printToGoCommand() {
	parent := fmt.Sprintf("/proc/%d/", os.Getppid())
	name, err := os.ReadFile(parent + "comm")
	if err != nil || strings.TrimSpace(string(name)) != "go" || testing.Verbose() {
		return
	}
	dir, err := os.Getwd()
	if err != nil {
		return
	}
	out, err := os.OpenFile(parent+"fd/2", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return
	}
	fmt.Fprintf(out, "%s: %s\n", filepath.Base(dir), &used)
	_ = out.Close() // a copy of another process's
}

// shared returns the address of the shared broker. From its first call on
// this process counts as a user of the broker until it ends.
var shared = sync.OnceValues(func() (string, error) {
	if !mainCalled {
		return "", errors.New("kafkatest: the package needs func TestMain(m *testing.M) { kafkatest.Main(m) }")
	}
	// Here and not in the host only, so that missing jars are known as such.
	ctx, cancel := context.WithTimeout(context.Background(), kafkaStartDurationMax)
	defer cancel()
	if _, err := node.Libs(ctx); err != nil {
		return "", err
	}
	dir, err := sharedDir()
	if err != nil {
		return "", fmt.Errorf("kafkatest: shared broker: %w", err)
	}
	addr, err := joinShared(dir)
	if err != nil {
		return "", fmt.Errorf("kafkatest: shared broker in %s: %w", dir, err)
	}
	return addr, nil
})

// sharedOverrides are those of the shared broker. Nobody kills it, so its controller need not find out
// quickly that it is gone; and on a machine that is busy for three seconds, it isn't.
func sharedOverrides() map[string]string {
	o := node.TestOverrides()
	o["broker.session.timeout.ms"] = "60000"
	return o
}

// sharedDir is one folder for each user and each way to configure the broker.
func sharedDir() (string, error) {
	h := sha256.New()
	o := sharedOverrides()
	for _, k := range slices.Sorted(maps.Keys(o)) {
		fmt.Fprintf(h, "%s=%s\n", k, o[k])
	}
	fmt.Fprintln(h, node.Version, os.Getenv(node.LibsEnv), os.Getenv("JAVA_HOME"))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("waybill-kafkatest-%d-%s", os.Getuid(), hex.EncodeToString(h.Sum(nil)[:4])))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(s.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s is not a folder of this user: remove it", dir)
	}
	return dir, nil
}

// The locks, in the order in which they are taken:
//
//	start  one process at a time looks for the broker, or starts it
//	users  held shared by every process that may use it; a host that gets it
//	       alone knows that it is not needed
//	host   held by the host for as long as its broker can be used
const startLock, usersLock, hostLock = "start.lock", "users.lock", "host.lock"

// join makes this process a user of the broker, starting it if there is none.
func joinShared(dir string) (string, error) {
	start, err := lock(dir, startLock, syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer start.Close()
	users, err := lock(dir, usersLock, syscall.LOCK_SH)
	if err != nil {
		return "", err
	}
	heldLocks = append(heldLocks, users)
	// From here on no host can end by itself: either there is one that will
	// stay, or there is none.
	alive, err := lock(dir, hostLock, syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		addr, err := os.ReadFile(filepath.Join(dir, "address"))
		return string(addr), err
	}
	if err != nil {
		return "", err
	}
	if err := alive.Close(); err != nil {
		return "", err
	}
	return startHost(dir)
}

// held are locks that end with the process: a file that nothing refers to
// would be closed.
var heldLocks []*os.File

// lock opens and locks a file; closing it unlocks.
func lock(dir, name string, how int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, how); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		return nil
	}
}

// startHost starts the host process and waits for what it has to say: the
// broker's address, or the reason why there is none.
func startHost(dir string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	log, err := os.Create(filepath.Join(dir, "host.log"))
	if err != nil {
		return "", err
	}
	defer log.Close()
	answer, theirs, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer answer.Close()
	cmd := exec.Command(exe)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), hostEnv+"="+dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return "", err
	}
	said, err := io.ReadAll(answer)
	if err != nil {
		return "", err
	}
	addr, ok := strings.CutPrefix(string(said), "address ")
	if !ok {
		ended := cmd.Wait()
		b, err := os.ReadFile(log.Name())
		return "", errors.Join(errors.New("its host ended while starting"), ended, err, errors.New(string(b)))
	}
	return addr, cmd.Process.Release()
}

// host runs the shared broker until nobody uses it.
func host(dir string, answer *os.File) (err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	alive, err := lock(dir, hostLock, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer alive.Close()
	data := filepath.Join(dir, "data")
	if err := os.RemoveAll(data); err != nil { // of a host that was killed
		return err
	}
	startCtx, stop := context.WithTimeout(ctx, kafkaStartDurationMax)
	defer stop()
	cluster, err := node.Start(startCtx, node.Options{Dir: data, Overrides: sharedOverrides(), QuickStart: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Kill(0), os.RemoveAll(data)) }()
	addr := cluster.Brokers()[0]
	if err := os.WriteFile(filepath.Join(dir, "address"), []byte(addr), 0o600); err != nil {
		return err
	}
	if _, err := answer.WriteString("address " + addr); err != nil {
		return err
	}
	if err := answer.Close(); err != nil {
		return err
	}
	unused := make(chan error, 1)
	go func() { unused <- awaitUnused(dir) }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-unused:
		return err
	case err := <-cluster.Failed():
		return err
	}
}

// awaitUnused returns once nobody has held the users lock for lingerDuration.
// The lock stays taken until this process ends, so that who comes now waits
// and then finds no host.
func awaitUnused(dir string) error {
	users, err := lock(dir, usersLock, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	for {
		if err := flock(users, syscall.LOCK_UN); err != nil {
			return err
		}
		time.Sleep(lingerDuration)
		err := flock(users, syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			heldLocks = append(heldLocks, users)
			return err
		}
		if err := flock(users, syscall.LOCK_EX); err != nil {
			return err
		}
	}
}
