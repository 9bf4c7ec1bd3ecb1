package streams

import (
	"maps"
	"strconv"
)

// Split sends each record to one of several streams (upstream's BranchedKStream). Branches are tried in the order in which they were added.
type Split[K, V any] struct {
	s *Stream[K, V]
	// name of the splitting operator, which those of the branches begin with.
	name     string
	branches []branch[K, V]
	fallback string
	streams  map[string]*Stream[K, V]
}

// branch is one way out of a split.
type branch[K, V any] struct {
	when func(k K, v V) bool
	name string
}

// Split begins a split. Each record goes to the first branch whose function takes it, else to the default branch; without one it is
// dropped. Records without a value, where V has none, go to the default branch.
func (s *Stream[K, V]) Split(opts ...Option) *Split[K, V] {
	o := s.b.read("Split", opts)
	sp := &Split[K, V]{s: s, name: s.b.nameOr(o.named, "KSTREAM-BRANCH-"), streams: make(map[string]*Stream[K, V])}
	nilable := nullsOf[V]().nilable
	sp.s = s.same(sp.name, func(sc *scope[Record[K, V]]) (func(*Record[K, V]) error, error) {
		to := make(map[string]receiver[Record[K, V]])
		for i, c := range sc.Children() {
			to[c.Name] = sc.to[i]
		}
		ways := make([]receiver[Record[K, V]], len(sp.branches))
		for i, b := range sp.branches {
			ways[i] = to[b.name]
		}
		fallback := to[sp.fallback]
		return func(r *Record[K, V]) error {
			if !r.NoValue || nilable {
				for i := range sp.branches {
					if sp.branches[i].when(r.Key, r.Value) {
						return ways[i].receive(r)
					}
				}
			}
			if fallback != nil {
				return fallback.receive(r)
			}
			return nil
		}, nil
	})
	return sp
}

// Branch adds the stream of the records that when takes and no branch before did (upstream's BranchedKStream.branch). It is called by the
// name of the split with what Named says behind it, or with its number, from 1 (upstream's Branched.as).
func (sp *Split[K, V]) Branch(when func(k K, v V) bool, opts ...Option) *Stream[K, V] {
	o := sp.s.b.read("Branch", opts)
	return sp.add(sp.childName(o, len(sp.branches)+1), when)
}

// Default adds the stream of the records that no branch took (upstream's BranchedKStream.defaultBranch). Its number is 0.
func (sp *Split[K, V]) Default(opts ...Option) *Stream[K, V] {
	o := sp.s.b.read("Default", opts)
	name := sp.childName(o, 0)
	if sp.fallback != "" {
		sp.s.b.fail(name, "split %s has a default branch already", sp.name)
		return sp.streams[sp.fallback]
	}
	sp.fallback = name
	return sp.add(name, nil)
}

// Streams are the branches by their names (what upstream's defaultBranch and noDefaultBranch return).
func (sp *Split[K, V]) Streams() map[string]*Stream[K, V] { return maps.Clone(sp.streams) }

func (sp *Split[K, V]) childName(o options, number int) string {
	if o.named != "" {
		return sp.name + o.named
	}
	return sp.name + strconv.Itoa(number)
}

// add makes the node of a branch, which only hands on.
func (sp *Split[K, V]) add(name string, when func(k K, v V) bool) *Stream[K, V] {
	sp.s.b.index++ // used up, and not part of the name, as in upstream
	d := sp.s.same(name, func(sc *scope[Record[K, V]]) (func(*Record[K, V]) error, error) { return sc.emit, nil })
	if when != nil {
		sp.branches = append(sp.branches, branch[K, V]{when: when, name: name})
	}
	sp.streams[name] = d
	return d
}
