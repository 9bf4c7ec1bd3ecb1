//go:build unix

package postgrestest

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// another is the user that a server of root's runs as.
func another() (uid, gid uint32) {
	const nobody = 65534
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid > 0 {
			return uint32(uid), uint32(gid)
		}
	}
	return nobody, nobody
}

// give hands a directory to the user that the server runs as.
func give(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid := another()
	return os.Chown(dir, int(uid), int(gid))
}

// credential is nil where the server runs as who runs the test.
func credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid := another()
	return &syscall.Credential{Uid: uid, Gid: gid, NoSetGroups: false}
}
