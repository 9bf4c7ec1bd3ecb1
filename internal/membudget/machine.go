package membudget

import (
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Source says what a default limit is a share of.
type Source string

// The sources. A control group is made for one program, a machine has others and a page cache.
const (
	ControlGroup Source = "control group"
	Machine      Source = "machine"
	Unknown      Source = "unknown"
)

const (
	groupPercent   = 80
	machinePercent = 25
	// mostPercent of the whole is what a default may be raised to.
	mostPercent  = 50
	unknownLimit = 1 << 30
)

// Default is the limit that holds when none is given.
type Default struct {
	Limit int64
	// Total is what it is a share of; 0 when that is not known.
	Total  int64
	Source Source
}

// For is the limit for who needs so much at least: the share, or what is needed where that is more and not beyond half of
// the whole. On a small machine the share is too little for an instance that the machine could well carry.
func (d Default) For(need int64) int64 { return max(d.Limit, min(need, d.Total/100*mostPercent)) }

// DefaultLimit looks at the machine's and its control groups' memory. root is the root of the file system: on systems
// without /proc nothing is known, and the limit is 1 GiB.
func DefaultLimit(root fs.FS) Default {
	machine, known := meminfo(root)
	group := groupLimit(root)
	switch {
	case group < math.MaxInt64 && (!known || group < machine):
		return Default{Limit: group / 100 * groupPercent, Total: group, Source: ControlGroup}
	case known:
		return Default{Limit: machine / 100 * machinePercent, Total: machine, Source: Machine}
	default:
		return Default{Limit: unknownLimit, Source: Unknown}
	}
}

func meminfo(root fs.FS) (total int64, known bool) {
	b, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, false
	}
	total = kilobytes(b, "MemTotal:")
	return total, total > 0
}

// kilobytes is the value, in bytes, of a line that says "name: n kB"; 0 without one.
func kilobytes(b []byte, name string) int64 {
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}

// MappedResident is how much of files this process has in memory: code, logs and tables that are mapped. 0 where that is not known.
// root is the root of the file system.
func MappedResident(root fs.FS) int64 {
	b, err := fs.ReadFile(root, "proc/self/status")
	if err != nil {
		return 0
	}
	return kilobytes(b, "RssFile:") + kilobytes(b, "RssShmem:")
}

// groupLimit is the least limit of the control groups that this process is in and of those above them, version 2 and 1;
// MaxInt64 for none.
func groupLimit(root fs.FS) int64 {
	least := int64(math.MaxInt64)
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(b)) {
		// hierarchy:controllers:path; the hierarchy of version 2 is 0 and names no controllers.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		var mount, file string
		switch {
		case fields[0] == "0" && fields[1] == "":
			mount, file = "sys/fs/cgroup", "memory.max"
		case hasController(fields[1], "memory"):
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// Within a container the path may be the host's, of which only the end, or nothing, is mounted: what is not there is
		// passed over.
		for dir := path.Clean("/" + fields[2]); ; dir = path.Dir(dir) {
			least = min(least, limitIn(root, path.Join(mount, dir, file)))
			if dir == "/" {
				break
			}
		}
	}
	return least
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// limitIn reads a limit; MaxInt64 for none. Version 1 writes a number that no machine has for none.
func limitIn(root fs.FS, file string) int64 {
	const none = 1 << 60
	b, err := fs.ReadFile(root, file)
	if err != nil {
		return math.MaxInt64
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n <= 0 || n >= none {
		return math.MaxInt64
	}
	return n
}
