package node

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Version is the release of Apache Kafka that this package runs. pom.xml
// names it too; a test compares them.
const Version = "4.3.1"

// LibsEnv names the environment variable that says in which folder the jars
// are, or are to be put.
const LibsEnv = "WAYBILL_KAFKA_LIBS"

// javaVersionMin is the oldest Java that the broker's classes run on.
const javaVersionMin = 17

//go:embed pom.xml
var pom []byte

// ErrMissing is wrapped by errors that say that what has to be on the machine
// is not there: a program, a new enough one, or jars that can't be fetched.
var ErrMissing = errors.New("missing")

// Available reports whether a broker could be started here: nil, or an error
// that wraps ErrMissing and says what to install. It downloads nothing.
func Available(ctx context.Context) error {
	if _, err := java(ctx); err != nil {
		return err
	}
	dir, err := libsDir()
	if err != nil {
		return err
	}
	if hasBrokerJar(dir) {
		return nil
	}
	_, err = maven()
	return err
}

// Libs returns the folder that holds the broker's jars, and fetches them with
// Maven if they are not there yet: into $WAYBILL_KAFKA_LIBS, or else into
// waybill/kafka-<Version> in the user's cache folder. Processes that ask at
// once wait for one download. ctx ends the download.
func Libs(ctx context.Context) (string, error) {
	dir, err := libsDir()
	if err != nil {
		return "", err
	}
	if hasBrokerJar(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("kafka jars: %w", err)
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("kafka jars: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("kafka jars: lock %s: %w", lock.Name(), err)
	}
	if hasBrokerJar(dir) { // another process was faster
		return dir, nil
	}
	return dir, download(ctx, dir)
}

func libsDir() (string, error) {
	if dir := os.Getenv(LibsEnv); dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("kafka jars: no cache folder (%w): set HOME, or %s to a folder for the jars", err, LibsEnv)
	}
	return filepath.Join(cache, "waybill", "kafka-"+Version), nil
}

// complete reports whether dir holds the broker. The folder appears by one
// rename, so the main jar stands for all of them.
func hasBrokerJar(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "kafka_2.13-"+Version+".jar"))
	return err == nil
}

func download(ctx context.Context, dir string) (err error) {
	mvn, err := maven()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".new-")
	if err != nil {
		return fmt.Errorf("kafka jars: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), pom, 0o644); err != nil {
		return fmt.Errorf("kafka jars: %w", err)
	}
	libs := filepath.Join(tmp, "libs")
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-Dstyle.color=never", "-f", filepath.Join(tmp, "pom.xml"),
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+libs)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("kafka jars: %w, and %s failed: %w\n%s\nIs Maven Central within reach (proxy settings: ~/.m2/settings.xml)?",
			ErrMissing, cmd, err, strings.TrimSpace(string(out)))
	}
	if !hasBrokerJar(libs) {
		return fmt.Errorf("kafka jars: %s ended well, but %s has no kafka_2.13-%s.jar", cmd, libs, Version)
	}
	// A folder that is there but is not complete was made by hand, if it is
	// empty: Rename replaces an empty folder and refuses any other.
	if err := os.Rename(libs, dir); err != nil {
		if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("kafka jars: %s holds something else than Kafka %s: remove it, or set %s to another folder",
				dir, Version, LibsEnv)
		}
		return fmt.Errorf("kafka jars: %w", err)
	}
	return nil
}

func maven() (string, error) {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return "", fmt.Errorf("kafka jars: mvn is %w: install Maven (Debian: apt-get install maven), or set %s to a folder that has the jars of Kafka %s",
			ErrMissing, LibsEnv, Version)
	}
	return mvn, nil
}

// java returns the java to run: of JAVA_HOME if it is set, else of PATH.
func java(ctx context.Context) (string, error) {
	const install = "install a JDK %d or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one"
	path := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		path = filepath.Join(home, "bin", "java")
	}
	path, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("kafka: java is %w (%v): "+install, ErrMissing, err, javaVersionMin)
	}
	out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kafka: %s -version: %w\n%s", path, err, strings.TrimSpace(string(out)))
	}
	major, ok := javaMajor(string(out))
	if !ok {
		return "", fmt.Errorf("kafka: %s -version says no version that can be read: %q", path, out)
	}
	if major < javaVersionMin {
		return "", fmt.Errorf("kafka: a new enough java is %w: %s is Java %d: "+install, ErrMissing, path, major, javaVersionMin)
	}
	return path, nil
}

// javaMajor reads the major version from what `java -version` prints:
// `openjdk version "17.0.15" 2025-04-15`, or `"1.8.0_292"` before Java 9.
func javaMajor(out string) (int, bool) {
	_, rest, ok := strings.Cut(out, `version "`)
	if !ok {
		return 0, false
	}
	rest = strings.TrimPrefix(rest, "1.")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return 0, false
	}
	major, err := strconv.Atoi(rest[:end])
	return major, err == nil
}
