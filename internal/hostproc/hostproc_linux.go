package hostproc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Self is this process, zero where the system does not tell.
func Self() ID {
	namespace, err := os.Readlink("/proc/self/ns/pid") // pid:[4026531836]
	if err != nil {
		return ID{}
	}
	st, err := readStat("/proc/self/stat")
	if err != nil {
		return ID{}
	}
	id := ID{
		BootID:       bootID(),
		PIDNamespace: strings.TrimSuffix(strings.TrimPrefix(namespace, "pid:["), "]"),
		PID:          os.Getpid(), StartTime: st.start,
	}
	if !id.known() {
		return ID{}
	}
	return id
}

func bootID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot))
}

// inodeOf is the number of a file and that of its file system.
func inodeOf(path string) string {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// look asks the kernel first: where /proc hides the processes of other users, a file that is not there says nothing.
func look(id ID) State {
	switch err := syscall.Kill(id.PID, 0); {
	case errors.Is(err, syscall.ESRCH):
		return Gone
	case err != nil && !errors.Is(err, syscall.EPERM):
		return Unknown
	}
	st, err := readStat(fmt.Sprintf("/proc/%d/stat", id.PID))
	switch {
	case err == nil:
		return st.judge(id.StartTime)
	case errors.Is(syscall.Kill(id.PID, 0), syscall.ESRCH): // it has just been collected
		return Gone
	default:
		return Unknown
	}
}

// stat is what we read of /proc/PID/stat.
type stat struct {
	state   byte
	threads int
	start   uint64
}

// judge says what has become of the process that started at start.
func (s stat) judge(start uint64) State {
	switch {
	case s.start != start:
		return Gone // its PID is another's now
	case s.state == 'X':
		return Gone
	case s.state == 'Z' && s.threads <= 1: // with more, only the first thread has ended
		return Gone
	default:
		return Running
	}
}

var errStat = errors.New("hostproc: not the format of /proc/PID/stat")

func readStat(path string) (stat, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat takes fields by their number in proc(5). The second, the name, may hold spaces and parentheses; what follows it
// begins after the last of these.
func parseStat(b []byte) (stat, error) {
	const state, threads, start, first = 3, 20, 22, 3
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return stat{}, errStat
	}
	fields := bytes.Fields(b[end+1:])
	if len(fields) <= start-first || len(fields[state-first]) != 1 {
		return stat{}, errStat
	}
	n, err := strconv.Atoi(string(fields[threads-first]))
	if err != nil {
		return stat{}, errStat
	}
	at, err := strconv.ParseUint(string(fields[start-first]), 10, 64)
	if err != nil {
		return stat{}, errStat
	}
	return stat{state: fields[state-first][0], threads: n, start: at}, nil
}
