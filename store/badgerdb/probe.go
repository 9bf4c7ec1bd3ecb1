package badgerdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
		if err := probeTable(opt, id, t.Compression); err != nil {
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

// reach reports whether the tables that belonged to the database before it was opened hold the record of D at ts, on which
// one in the logs follows. Badger takes a manifest that was cut for one that ends there, and the tables listed behind that
// for leftovers: then what was flushed is gone, and what the logs go on with is there.
func reach(b *badger.DB, tables map[uint64]badger.TableManifest, ts uint64) error {
	last, found := uint64(0), 0
	for _, t := range b.Tables() {
		if _, ok := tables[t.ID]; ok {
			last = max(last, t.MaxVersion)
			found++
		}
	}
	if last < ts && found == len(tables) { // else some have been compacted since, and that tells nothing
		return fmt.Errorf("the logs follow on record %d, and the tables end at %d: %w", ts, last, store.ErrCorrupt)
	}
	return nil
}

func probeTable(opt badger.Options, id uint64, compression options.CompressionType) (err error) {
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
		err = t.VerifyChecksum()
	}
	if err != nil {
		return fmt.Errorf("table %s: %w: %w", filepath.Base(name), store.ErrCorrupt, err)
	}
	return nil
}
