package hostproc

// ID is a process as its machine knows it. The zero ID is no process: nothing is known of it.
type ID struct {
	// BootID is one start of the machine's kernel, a UUID.
	BootID string
	// PIDNamespace is the inode number of that of the process.
	PIDNamespace string
	PID          int
	// StartTime of the process in clock ticks since the boot.
	StartTime uint64
}

// Beside reports whether two processes see each other's PIDs.
func (id ID) Beside(other ID) bool {
	return id.known() && other.known() && id.BootID == other.BootID && id.PIDNamespace == other.PIDNamespace
}

func (id ID) known() bool {
	return id.BootID != "" && id.PIDNamespace != "" && id.PID > 0 && id.StartTime > 0
}

// State is what is known of a process.
type State uint8

// The states of a process.
const (
	// Unknown: it runs elsewhere, or the system does not tell.
	Unknown State = iota
	// Running also holds for one that is stopped, or about to end.
	Running
	// Gone: no instruction of it will ever be executed again. Its PID is free, or another's, or waits to be collected.
	Gone
)

func (s State) String() string {
	switch s {
	case Running:
		return "running"
	case Gone:
		return "gone"
	default:
		return "unknown"
	}
}

// Look says whether the process still runs. self is the caller's own ID: of processes that are not beside it nothing is
// known.
func Look(self, id ID) State {
	if !self.Beside(id) {
		return Unknown
	}
	return look(id)
}

// Directory names a directory on this machine, in this boot: one that was copied, or is mounted anew elsewhere, has another
// name. "" where the system does not tell.
func Directory(path string) string {
	boot, inode := bootID(), inodeOf(path)
	if boot == "" || inode == "" {
		return ""
	}
	return boot + " " + inode
}
