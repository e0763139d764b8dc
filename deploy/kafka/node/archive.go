package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// archiveOf returns the path of a class archive next to the jars. The first call makes the archive, which takes about ten
// seconds. It has the classes that a broker loads until it serves clients. A JVM with it parses and verifies none of these
// classes, so the start of a node and of StorageTool takes 40 % less processor time (class data sharing, JEP 350). The JVM
// checks that the archive fits, and ignores it otherwise. Each version of Java has its own.
//
// Empty: the directory of the jars can't be written to.
func archiveOf(ctx context.Context, java, libs string) (string, error) {
	version, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kafka: %s -version: %w\n%s", java, err, version)
	}
	sum := sha256.Sum256(version)
	path := filepath.Join(libs, "broker-"+hex.EncodeToString(sum[:6])+".jsa")
	if exists(path) {
		return path, nil
	}
	if syscall.Access(libs, writable) != nil {
		return "", nil
	}
	unlock, err := lockLibs(libs)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(path) { // another process has made it meanwhile
		return path, nil
	}
	return path, makeArchive(ctx, path)
}

// writable is W_OK of access(2).
const writable = 2

// makeArchive starts a node that writes the archive when it ends.
func makeArchive(ctx context.Context, path string) (err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(path), ".archive-")
	if err != nil {
		return fmt.Errorf("kafka: archive of classes: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	made := filepath.Join(tmp, "broker.jsa")
	c, err := Start(ctx, Options{Overrides: TestOverrides(), archiveTo: made})
	if err != nil {
		return err
	}
	// It writes the archive after SIGTERM.
	err = c.withProcess(0, true, func(p *process) error { return p.terminate(startDurationMax) })
	if err = errors.Join(err, c.Stop()); err != nil {
		return fmt.Errorf("kafka: archive of classes: %w", err)
	}
	if err := os.Rename(made, path); err != nil {
		return fmt.Errorf("kafka: archive of classes: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
