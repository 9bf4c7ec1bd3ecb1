package layered

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// formatVersion is that of everything under the state directory. It changes when an older program could not read, or
	// would damage, what is written.
	//
	//	1  key-value stores
	//	2  rows in segments: window, session and versioned stores
	formatVersion = 2

	versionFile   = "VERSION"
	versionPrefix = "statemesh state "
)

// upgrade brings what a directory holds from one format to the next. The version is written after the last one, so a crash
// begins them again: each must be able to run on what it has done in part already, and to leave what it replaces until
// the new is durable.
type upgrade func(dir string) error

// upgrades are the steps from each format that is still taken; nil where there is nothing to do.
var upgrades = map[int]upgrade{
	1: nil, // its rows and records are read as they are
}

// VersionError reports a state directory of a format that this program does not read.
type VersionError struct {
	Dir string
	// Have is what the directory says, Want what this program writes.
	Have, Want string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("state directory %s: format %q, this program has %q and reads older ones from %q: "+
		"use the program that wrote it, or an empty directory (the state is rebuilt from the changelogs)",
		e.Dir, e.Have, e.Want, formatName(oldestVersion(upgrades)))
}

// oldestVersion is the oldest format from which steps lead to the present one.
func oldestVersion(steps map[int]upgrade) int {
	oldest := formatVersion
	for {
		if _, ok := steps[oldest-1]; !ok {
			return oldest
		}
		oldest--
	}
}

func formatName(version int) string { return versionPrefix + strconv.Itoa(version) }

// checkVersion brings the directory to this program's format, or refuses it. A new directory is given the format.
func (d *directory) checkVersion(steps map[int]upgrade) error {
	path := filepath.Join(d.path, versionFile)
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state directory %s: %w", d.path, err)
	}
	have := strings.TrimSpace(string(b))
	refused := &VersionError{Dir: d.path, Have: have, Want: formatName(formatVersion)}
	if err != nil {
		if dbs, err := filepath.Glob(filepath.Join(d.path, databasePrefix+"*")); err != nil || len(dbs) > 0 {
			return errors.Join(refused, err)
		}
		return d.writeVersion(path)
	}
	digits, ok := strings.CutPrefix(have, versionPrefix)
	version, err := strconv.Atoi(digits)
	if !ok || err != nil || version > formatVersion || version < oldestVersion(steps) {
		return refused
	}
	if version == formatVersion {
		return nil
	}
	for v := version; v < formatVersion; v++ {
		if step := steps[v]; step != nil {
			if err := step(d.path); err != nil {
				return fmt.Errorf("state directory %s: from format %d to %d: %w", d.path, v, v+1, err)
			}
		}
	}
	return d.writeVersion(path)
}

func (d *directory) writeVersion(path string) error {
	if err := writeDurably(path, []byte(formatName(formatVersion)+"\n")); err != nil {
		return fmt.Errorf("state directory %s: %w", d.path, err)
	}
	return nil
}
