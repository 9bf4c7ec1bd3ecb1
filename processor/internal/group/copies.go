package group

import (
	"encoding/hex"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/statemesh/statemesh/store"
)

// The part of the user data that came with version 2.

// copies reads what an assignment says of them.
func (r *reader) copies(a *Assignment) {
	flags := r.byte()
	a.Copies, a.FollowUp = flags&flagCopies != 0, flags&flagFollowUp != 0
	a.Again, a.Drains = flags&flagAgain != 0, flags&flagDrains != 0
	a.Warmup, a.Retained = r.tasks(), r.tasks()
	a.Awaited = slices.Concat(a.Warmup, r.tasks())
	slices.SortFunc(a.Awaited, store.TaskID.Compare)
	a.Awaited = slices.Compact(a.Awaited)
	a.ReadyLag = r.int64()
	keep := make(map[store.TaskID]bool)
	for _, id := range r.tasks() {
		keep[id] = true
	}
	for i := range a.Releasing {
		a.Releasing[i].Keep = keep[a.Releasing[i].Task]
	}
}

// subtract returns the tasks of a that are not in b.
func subtract(a, b []store.TaskID) []store.TaskID {
	without := make(map[store.TaskID]bool, len(b))
	for _, id := range b {
		without[id] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(id store.TaskID) bool { return without[id] })
}

// maxTags is how many tags a process can have (KIP-708).
const maxTags = 5

func (w *writer) tags(tags map[string]string) {
	keys := slices.Sorted(maps.Keys(tags))
	keys = keys[:min(len(keys), maxTags)]
	w.number(uint64(len(keys)))
	for _, k := range keys {
		w.text(k)
		w.text(tags[k])
	}
}

func (r *reader) tags() map[string]string {
	n := r.count(maxTags, "tags")
	if n == 0 {
		return nil
	}
	tags := make(map[string]string, n)
	for range n {
		k := r.text()
		tags[k] = r.text()
	}
	return tags
}

// How a host is written: nothing known, the boot id as 16 bytes, or as text.
const (
	hostNone = iota
	hostUUID
	hostText
)

func (w *writer) host(h HostID) {
	if h == (HostID{}) {
		w.b = append(w.b, hostNone)
		return
	}
	if id, ok := parseUUID(h.BootID); ok {
		w.b = append(append(w.b, hostUUID), id...)
	} else {
		w.b = append(w.b, hostText)
		w.text(h.BootID)
	}
	w.text(h.PIDNamespace)
	w.number(uint64(min(max(h.PID, 0), math.MaxInt32)))
	w.number(h.StartTime)
}

func (r *reader) host() HostID {
	var h HostID
	switch r.byte() {
	case hostNone:
		return h
	case hostUUID:
		h.BootID = r.uuid()
	case hostText:
		h.BootID = r.text()
	default:
		r.fail("host")
		return h
	}
	h.PIDNamespace, h.PID, h.StartTime = r.text(), r.small(math.MaxInt32, "pid"), r.number()
	return h
}

// dashes are where a UUID in its usual form has them.
var dashes = [...]int{8, 13, 18, 23}

// parseUUID reads a UUID as the kernel writes it; any other form stays text, so that what is read is what was written.
func parseUUID(s string) ([]byte, bool) {
	if len(s) != 36 || s != strings.ToLower(s) {
		return nil, false
	}
	for _, i := range dashes {
		if s[i] != '-' {
			return nil, false
		}
	}
	id, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	return id, err == nil && len(id) == 16
}

func (r *reader) uuid() string {
	if len(r.b) < 16 {
		r.fail("uuid")
		return ""
	}
	s := hex.EncodeToString(r.b[:16])
	r.b = r.b[16:]
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}
