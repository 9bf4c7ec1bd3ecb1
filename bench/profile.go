package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profile writes a CPU profile of f, and one of what has been allocated up to its end, into the directory that -profile
// names; without one it only runs f.
func (b *bench) profile(name string, f func() error) (err error) {
	if b.profiles == "" {
		return f()
	}
	file, err := os.Create(filepath.Join(b.profiles, name+".cpu.pprof"))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(err, file.Close())
	}
	err = f()
	pprof.StopCPUProfile()
	return errors.Join(err, file.Close(), b.profileAllocations(name))
}

func (b *bench) profileAllocations(name string) error {
	file, err := os.Create(filepath.Join(b.profiles, name+".allocs.pprof"))
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}

// profileMemory writes what is in use.
func (b *bench) profileMemory(name string) error {
	file, err := os.Create(filepath.Join(b.profiles, name+".heap.pprof"))
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(file), file.Close())
}
