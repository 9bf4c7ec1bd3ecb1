package badgerdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// Tuning is how a database lays out what it writes. It holds for all stores in it, which share memtables and tables. What
// was written otherwise is read as it is and takes the new form when it is compacted. Zero fields mean the defaults.
type Tuning struct {
	// Compression of blocks: none (default), snappy or zstd. State is small and hot as a rule, and without compression blocks
	// are read where the file is mapped and need no cache.
	Compression string
	// BlockCacheBytes holds unpacked blocks; it is needed with compression and of no use without. Default with compression
	// 64 MiB.
	BlockCacheBytes int64
	// BlockBytes is the size of a block, 1 KiB to 64 KiB. Default 4 KiB: what a point read costs at least.
	BlockBytes int
	// BloomFalsePositive is how often a table is searched for a key that it does not have, above 0 and below 1. Default
	// 0.01, ten bits a key.
	BloomFalsePositive float64
	// Levels of tables, 3 to 12. Default 7. More may be asked for at any time, fewer only of an empty database: the
	// oldest tables lie on the last one.
	Levels int
}

// FieldError is one thing that is wrong with a [Tuning].
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return "engine " + e.Field + ": " + e.Reason }

// Names of Tuning.Compression.
const (
	CompressionNone   = "none"
	CompressionSnappy = "snappy"
	CompressionZstd   = "zstd"
)

// Compressed reports whether blocks are.
func (t Tuning) Compressed() bool { return t.Compression != "" && t.Compression != CompressionNone }

// Validate reports everything that is wrong, joined, each as a [*FieldError].
func (t Tuning) Validate() error {
	c := t.withDefaults()
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if _, ok := codecs[c.Compression]; !ok {
		bad("Compression", "%q: want %s, %s or %s", c.Compression, CompressionNone, CompressionSnappy, CompressionZstd)
	}
	switch least := int64(1 << 20); {
	case !t.Compressed() && t.BlockCacheBytes != 0:
		bad("BlockCacheBytes", "%d: without compression blocks are read from mapped files, and a cache of them is of no use", t.BlockCacheBytes)
	case t.Compressed() && c.BlockCacheBytes < least:
		bad("BlockCacheBytes", "%d: at least %d with compression, or every read unpacks a block", c.BlockCacheBytes, least)
	}
	if c.BlockBytes < 1<<10 || c.BlockBytes > 64<<10 {
		bad("BlockBytes", "%d: want 1024 to 65536", c.BlockBytes)
	}
	if c.BloomFalsePositive <= 0 || c.BloomFalsePositive >= 1 {
		bad("BloomFalsePositive", "%g: want more than 0 and less than 1", c.BloomFalsePositive)
	}
	if c.Levels < 3 || c.Levels > 12 {
		bad("Levels", "%d: want 3 to 12", c.Levels)
	}
	return errors.Join(errs...)
}

func (t Tuning) withDefaults() Tuning {
	if t.Compression == "" {
		t.Compression = CompressionNone
	}
	if t.BlockCacheBytes == 0 && t.Compressed() {
		t.BlockCacheBytes = 64 << 20
	}
	if t.BlockBytes == 0 {
		t.BlockBytes = 4 << 10
	}
	if t.BloomFalsePositive == 0 {
		t.BloomFalsePositive = 0.01
	}
	if t.Levels == 0 {
		t.Levels = 7
	}
	return t
}

var codecs = map[string]options.CompressionType{
	CompressionNone: options.None, CompressionSnappy: options.Snappy, CompressionZstd: options.ZSTD,
}

// apply adds the tuning to Badger's options.
func (t Tuning) apply(o badger.Options) badger.Options {
	t = t.withDefaults()
	return o.WithCompression(codecs[t.Compression]).
		WithBlockCacheSize(t.BlockCacheBytes).
		WithBlockSize(t.BlockBytes).
		WithBloomFalsePositive(t.BloomFalsePositive).
		WithMaxLevels(t.Levels)
}

// fits reports why the tables in a directory cannot be opened with so many levels. Badger would end the process.
func (t Tuning) fits(dir string) error {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if err != nil {
		return nil // a new database, or one that opening finds damaged
	}
	defer func() { _ = f.Close() }() // read only
	m, _, err := badger.ReplayManifestFile(f, 0, badger.DefaultOptions(dir).WithLogger(nil))
	if err != nil {
		return nil // damage is found, and dealt with, by opening
	}
	if have, want := len(m.Levels), t.withDefaults().Levels; have > want {
		return &FieldError{Field: "Levels", Reason: fmt.Sprintf("%d, but its tables lie on %d: an empty state directory can have fewer", want, have)}
	}
	return nil
}
