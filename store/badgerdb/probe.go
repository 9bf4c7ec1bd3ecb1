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
	f, err := os.Open(filepath.Join(opt.Dir, badger.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	manifest, _, err := badger.ReplayManifestFile(f, opt.ExternalMagicVersion, opt)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("manifest: %w: %w", store.ErrCorrupt, err)
	}
	for id, t := range manifest.Tables {
		if err := probeTable(opt, id, t.Compression); err != nil {
			return err
		}
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
