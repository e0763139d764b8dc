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
	"github.com/waybill-run/waybill/internal/suite"
)

const (
	// hostEnv names the environment variable that makes the test binary the host, and holds the host's directory.
	hostEnv = "WAYBILL_KAFKATEST_HOST"
	// hostAnswerFd is the first of exec.Cmd's ExtraFiles: the pipe to which the host writes the broker's address.
	hostAnswerFd = 3
	// lingerDuration is how long the shared broker stays up without users. go test runs packages one after the other,
	// with gaps between them.
	lingerDuration = 5 * time.Second
)

// mainCalled reports that Main runs. Without Main, the test binary can't become the host.
var mainCalled bool

// Main runs the tests of a package that uses Kafka; the package's TestMain calls it. The last line that it prints says
// whether tests on real Kafka ran. go test shows the line with -v, or when the package fails.
func Main(m *testing.M) {
	if dir := os.Getenv(hostEnv); dir != "" {
		syscall.CloseOnExec(hostAnswerFd) // otherwise Kafka would inherit it and keep it open
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

// RunParallel sets -parallel to n if it isn't set and n exceeds GOMAXPROCS, which is the default. Tests that wait for
// brokers, session timeouts and other times leave the processors idle. TestMain calls it before Main.
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

// printToGoCommand also prints the last line to the go command's standard error. With a list of packages, the go
// command hides the output of packages that pass, and with it whether tests on real Kafka ran. If the parent isn't the
// go command, or its file can't be opened, nothing is printed here.
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
	_ = out.Close() // a second descriptor of the go command's file
}

// shared returns the address of the shared broker. From the first call on, this process counts as a user of the broker
// until it ends.
var shared = sync.OnceValues(func() (string, error) {
	if !mainCalled {
		return "", errors.New("kafkatest: the package needs func TestMain(m *testing.M) { kafkatest.Main(m) }")
	}
	// Not only in the host, so that callers get ErrMissing for missing jars.
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
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

// sharedOverrides returns the property overrides of the shared broker. No test kills it, so its controller need not
// detect its failure quickly. With the short session of TestOverrides, a broker that stalls for 3 s on a busy machine
// is fenced.
func sharedOverrides() map[string]string {
	o := node.TestOverrides()
	o["broker.session.timeout.ms"] = "60000"
	return o
}

// sharedDir returns the directory of the shared broker: one for each user and each configuration of the broker.
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

// The locks, in the order in which they are acquired:
//
//	start  held by the process that looks for the broker, or starts it
//	users  held shared by every process that may use the broker; if a host
//	       gets it exclusively, the broker isn't used
//	host   held by the host as long as its broker can be used
const startLock, usersLock, hostLock = "start.lock", "users.lock", "host.lock"

// joinShared makes this process a user of the broker, and starts the broker if it doesn't run.
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
	// From here on, the users lock keeps a host from ending by itself: either one runs and stays, or none runs.
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

// heldLocks keeps locks until the process ends: the garbage collector would close an unreferenced file.
var heldLocks []*os.File

// lock opens and locks a file. Closing the file unlocks it.
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

// startHost starts the host process. It returns the broker's address, or the reason why the host has none.
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

// host runs the shared broker until it has no users.
func host(dir string, answer *os.File) (err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	alive, err := lock(dir, hostLock, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer alive.Close()
	data := filepath.Join(dir, "data")
	if err := os.RemoveAll(data); err != nil { // left by a killed host
		return err
	}
	startCtx, stop := context.WithTimeout(ctx, suite.Patience)
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

// awaitUnused returns once the users lock has been free for lingerDuration. The lock stays held until this process
// ends, so a new user waits for it and then finds no host.
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
