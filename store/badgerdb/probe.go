package badgerdb

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"

	"github.com/statemesh/statemesh/store"
)

// probe looks at every table of a closed database. Badger opens tables in goroutines of its own, and a damaged one may end
// the process there; here the same damage is an error. It reads everything, so it is for a directory whose last opening
// ended the process: then it tells damage from a kill.
func probe(opt badger.Options) error {
	tables, err := listed(opt)
	if err != nil {
		return err
	}
	for id, t := range tables {
		if err := readTable(opt, id, t.Compression, (*table.Table).VerifyChecksum); err != nil {
			return err
		}
	}
	return nil
}

// listed reads which tables belong to a closed database.
func listed(opt badger.Options) (map[uint64]badger.TableManifest, error) {
	f, err := os.Open(filepath.Join(opt.Dir, badger.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // a new database has none
	} else if err != nil {
		return nil, err
	}
	manifest, _, err := badger.ReplayManifestFile(f, opt.ExternalMagicVersion, opt)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("manifest: %w: %w", store.ErrCorrupt, err)
	}
	return manifest.Tables, nil
}

// reach reports whether the tables of a closed database hold the record of D at ts, on which the first one in the logs
// follows. Badger takes a manifest that was cut for one that ends there, and the tables listed behind that for leftovers:
// then what was flushed is gone, and what the logs go on with is there. It comes before Badger's opening, whose flushes and
// compactions make tables of their own. The newest table has the record as a rule, so that no other is read.
func reach(opt badger.Options, tables map[uint64]badger.TableManifest, ts uint64) error {
	if ts == 0 {
		return nil
	}
	last := uint64(0)
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(tables))) {
		err := readTable(opt, id, tables[id].Compression, func(t *table.Table) error {
			last = max(last, t.MaxVersion())
			return nil
		})
		if errors.Is(err, fs.ErrNotExist) {
			return nil // Badger says what it means
		} else if err != nil {
			return err
		}
		if last >= ts {
			return nil
		}
	}
	return fmt.Errorf("the logs follow on record %d, and the tables end at %d: %w", ts, last, store.ErrCorrupt)
}

// readTable has look at a table, in memory. What Badger has to say about it is damage, a panic too.
func readTable(
	opt badger.Options, id uint64, compression options.CompressionType, look func(*table.Table) error,
) (err error) {
	name := table.NewFilename(id, opt.Dir)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("table %s: %w: %v", filepath.Base(name), store.ErrCorrupt, p)
		}
	}()
	b, err := os.ReadFile(name)
	if err != nil {
		return err // Badger says what it means
	}
	t, err := table.OpenInMemoryTable(b, id, &table.Options{
		ReadOnly: true, BlockSize: opt.BlockSize, BloomFalsePositive: opt.BloomFalsePositive, Compression: compression,
	})
	if err == nil {
		err = look(t)
	}
	if err != nil {
		return fmt.Errorf("table %s: %w: %w", filepath.Base(name), store.ErrCorrupt, err)
	}
	return nil
}
