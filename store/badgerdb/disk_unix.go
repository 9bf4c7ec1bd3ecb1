//go:build unix

package badgerdb

import "golang.org/x/sys/unix"

// freeBytes is what an unprivileged process may still write to the file system of dir.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // the types differ between systems
}
