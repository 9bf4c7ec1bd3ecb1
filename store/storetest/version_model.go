package storetest

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// VersionModel is a versioned store in its most naive form: it keeps everything that was ever put, and works out at each
// read what a store may show of it.
type VersionModel struct {
	Retention int64 // in milliseconds
	Time      int64 // -1 at first
	Keys      map[string]map[int64]*string
}

// NewVersionModel returns an empty one.
func NewVersionModel(retention int64) *VersionModel {
	return &VersionModel{Retention: retention, Time: -1, Keys: make(map[string]map[int64]*string)}
}

// Clone returns a copy.
func (m *VersionModel) Clone() *VersionModel {
	c := &VersionModel{Retention: m.Retention, Time: m.Time, Keys: make(map[string]map[int64]*string, len(m.Keys))}
	for key, versions := range m.Keys {
		c.Keys[key] = maps.Clone(versions)
	}
	return c
}

// Put puts a version, nil for a tombstone.
func (m *VersionModel) Put(key string, at int64, data *string) (validTo int64) {
	if at < m.Time-m.Retention {
		return store.NotPut
	}
	m.Time = max(m.Time, at)
	if m.Keys[key] == nil {
		m.Keys[key] = make(map[int64]*string)
	}
	m.Keys[key][at] = data
	return m.end(key, at)
}

// AsOf is the version that is to be read, nil when there is none.
func (m *VersionModel) AsOf(key string, asOf int64) *store.Version {
	from := int64(-1)
	for at := range m.Keys[key] {
		if at <= asOf && at > from {
			from = at
		}
	}
	if from < 0 || m.Keys[key][from] == nil {
		return nil
	}
	v := m.version(key, from)
	if v.ValidTo != store.NoEnd && asOf < m.Time-m.Retention {
		return nil
	}
	return v
}

// Latest is the latest version, nil when there is none.
func (m *VersionModel) Latest(key string) *store.Version { return m.AsOf(key, math.MaxInt64) }

// Count is how many keys have a latest version.
func (m *VersionModel) Count() int64 {
	n := int64(0)
	for key := range m.Keys {
		if m.Latest(key) != nil {
			n++
		}
	}
	return n
}

// Scan is what a scan is to yield.
func (m *VersionModel) Scan(s store.VersionScan) []store.Version {
	out := []store.Version{}
	oldest := m.Time - m.Retention
	for from, data := range m.Keys[string(s.Key)] {
		if data == nil || from > s.To || s.From > s.To {
			continue
		}
		v := m.version(string(s.Key), from)
		if v.ValidTo == store.NoEnd || s.To >= oldest && v.ValidTo > max(s.From, oldest) {
			out = append(out, *v)
		}
	}
	slices.SortFunc(out, func(a, b store.Version) int {
		c := cmp.Compare(a.Timestamp, b.Timestamp)
		if s.Reverse {
			return -c
		}
		return c
	})
	return out
}

// end is when the version that begins at the given time ends.
func (m *VersionModel) end(key string, from int64) int64 {
	end := int64(store.NoEnd)
	for at := range m.Keys[key] {
		if at > from && (end == store.NoEnd || at < end) {
			end = at
		}
	}
	return end
}

func (m *VersionModel) version(key string, from int64) *store.Version {
	return &store.Version{
		Value: store.Value{Data: []byte(*m.Keys[key][from]), Timestamp: from}, ValidTo: m.end(key, from),
	}
}
