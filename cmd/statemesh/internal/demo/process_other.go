//go:build !linux

package demo

import "syscall"

// childAttr asks for nothing special: only Linux ends a child with its parent.
func childAttr() *syscall.SysProcAttr { return nil }
