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

// Version is the release of Apache Kafka that this package runs. pom.xml has it too; a test compares them.
const Version = "4.3.1"

// LibsEnv names the environment variable with the directory of the jars. Libs fetches them into it if it has none.
const LibsEnv = "WAYBILL_KAFKA_LIBS"

// javaVersionMin is the oldest Java version that can run the broker.
const javaVersionMin = 17

//go:embed pom.xml
var pom []byte

// ErrMissing is wrapped by errors for missing prerequisites: a program, a new enough version of it, or jars that can't
// be fetched.
var ErrMissing = errors.New("missing")

// Available returns nil if a broker can be started here. Otherwise its error wraps ErrMissing and says what to install.
// It downloads nothing.
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

// Libs returns the directory of the broker's jars. If it doesn't exist yet, Libs fetches the jars with Maven, into
// $WAYBILL_KAFKA_LIBS or waybill/kafka-<Version> in the user's cache directory. Concurrent calls, also of several
// processes, share one download. ctx ends the download.
func Libs(ctx context.Context) (string, error) {
	dir, err := libsDir()
	if err != nil {
		return "", err
	}
	if hasBrokerJar(dir) {
		return dir, nil
	}
	unlock, err := lockLibs(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	if hasBrokerJar(dir) { // another process has fetched them meanwhile
		return dir, nil
	}
	return dir, download(ctx, dir)
}

// lockLibs locks the directory of the jars, which need not exist, against other processes that change it.
func lockLibs(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("kafka jars: %w", err)
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("kafka jars: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("kafka jars: lock %s: %w", lock.Name(), err), lock.Close())
	}
	return func() { _ = lock.Close() }, nil // closing it unlocks
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

// hasBrokerJar reports whether dir has the broker's jars. It checks only the main jar: a rename creates the directory
// with all of them.
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
	// Rename replaces an empty directory and refuses any other. One that exists without the main jar was not created by
	// Libs.
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

// java returns the path of the java command: from JAVA_HOME if it is set, otherwise from PATH.
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

// javaMajor parses the major version in the output of `java -version`: `openjdk version "17.0.15" 2025-04-15`, or
// `"1.8.0_292"` before Java 9.
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
