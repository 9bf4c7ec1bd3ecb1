package layered

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/statemesh/statemesh/store/badgerdb"
	"github.com/statemesh/statemesh/store/memdb"
)

// databasePrefix begins the name of a database's directory; its number follows.
const databasePrefix = "badger-"

// openEngines opens the databases that take new copies and those beyond them that still hold some.
func (s *Stores) openEngines(ctx context.Context) error {
	s.memory = memdb.New()
	if s.cfg.InMemory {
		return nil
	}
	numbers, err := databases(s.dir.path)
	if err != nil {
		return err
	}
	for i := range s.cfg.Databases {
		if !slices.Contains(numbers, i) {
			numbers = append(numbers, i)
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		opt := s.diskOptions()
		opt.Dir = filepath.Join(s.dir.path, databasePrefix+strconv.Itoa(n))
		opt.Logger = s.cfg.Logger.With("database", n)
		db, err := badgerdb.Open(ctx, opt)
		if err != nil {
			for _, d := range s.disks {
				err = errors.Join(err, d.Close())
			}
			return err
		}
		s.disks = append(s.disks, disk{Engine: s.cfg.Between(db), limits: opt.Limits()})
	}
	return nil
}

// diskOptions are those of every database.
func (s *Stores) diskOptions() badgerdb.Options {
	return badgerdb.Options{
		MemTableBytes: s.cfg.MemTableBytes,
		MinFreeBytes:  s.cfg.MinFreeBytes,
		Tuning:        s.cfg.Engine,
		DropWait:      s.cfg.DropWait,
		Listener: badgerdb.Listener{
			Compacted:   func(int64) { s.metrics.compactions.Inc() },
			Undone:      func(int) { s.metrics.undone.Inc() },
			Quarantined: func(string) { s.metrics.quarantine.Inc() },
		},
	}
}

// databases lists the numbers of the database directories under dir; those moved aside have a longer name.
func databases(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", dir, err)
	}
	var numbers []int
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), databasePrefix)
		if !ok || !e.IsDir() {
			continue
		}
		if n, err := strconv.Atoi(digits); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}
