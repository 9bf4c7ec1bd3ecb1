package statemesh

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/statemesh/statemesh/internal/hostproc"
	"github.com/statemesh/statemesh/processor"
)

// maxFormerMembers bounds a note: a start that fails again and again adds members each time, and so does a membership that is lost.
const maxFormerMembers = 64

// note says in the state directory who has used it since the group was last left in order, for whoever comes after a crash. A
// crash of the machine makes it worthless, so nothing is synced. Safe for concurrent use.
type note struct {
	path string // "": nothing is noted

	mu   sync.Mutex
	file *os.File // nil once closed
}

// noteLine is one line of the file. The first has the place, each of the others a member.
type noteLine struct {
	// Place is the directory, as hostproc names it.
	Place           string `json:"place,omitempty"`
	Incarnation     string `json:"incarnation,omitempty"`
	Member          string `json:"member,omitempty"`
	TransactionalID string `json:"transactional_id,omitempty"`
}

// succeed begins the note of an incarnation that uses dir from now on, and returns the members of those before it that are certain
// to be gone, and may not have left the group. The caller holds the lock of dir. It is certain of those that are noted in this
// very directory, not in one that this is a copy of, and under this very kernel: they have lost the lock. Where that cannot
// be told nothing is noted.
func succeed(dir string) (*note, []processor.MemberInfo, error) {
	place := hostproc.Directory(dir)
	if place == "" {
		return &note{}, nil, nil
	}
	n := &note{path: filepath.Join(dir, incarnationFile)}
	data, err := os.ReadFile(n.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("former incarnations: %w", err)
	}
	former := readNote(data, place)
	if n.file, err = os.OpenFile(n.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
		return nil, nil, fmt.Errorf("former incarnations: %w", err)
	}
	lines := []noteLine{{Place: place}}
	for _, m := range former {
		lines = append(lines, lineOf(m))
	}
	if err := n.write(lines...); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("former incarnations: %w", err), n.close())
	}
	return n, former, nil
}

// readNote takes what it can read of a note that was made at the place. A line that a kill cut off is none.
func readNote(data []byte, place string) (former []processor.MemberInfo) {
	here := false
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var l noteLine
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		switch {
		case l.Place != "":
			here = l.Place == place
		case here && l.Member != "":
			former = append(former, processor.MemberInfo{Incarnation: l.Incarnation, Member: l.Member, TransactionalID: l.TransactionalID})
		}
	}
	return former[max(0, len(former)-maxFormerMembers):]
}

func lineOf(m processor.MemberInfo) noteLine {
	return noteLine{Incarnation: m.Incarnation, Member: m.Member, TransactionalID: m.TransactionalID}
}

// add notes a member of this incarnation.
func (n *note) add(m processor.MemberInfo) error {
	return n.write(lineOf(m))
}

// write appends lines in one piece.
func (n *note) write(lines ...noteLine) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.file == nil {
		return nil
	}
	_, err := n.file.Write(b.Bytes())
	return err
}

// resign takes the note back: the group was left.
func (n *note) resign() error {
	if n.path == "" {
		return nil
	}
	if err := os.Remove(n.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// close lets go of the file. Idempotent.
func (n *note) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.file
	n.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}
