package processor

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/statemesh/statemesh/store"
)

// Difference is one thing in which a version of a topology differs from the one before.
type Difference struct {
	// Kind of the subject: "application", "sub-topology", "store", "repartition" or "source".
	Kind string
	// Name of the subject: of a sub-topology its number in the old version.
	Name   string
	Change Change
	// Effect says what becomes of what is there, and Do what to do about it; Do may be empty.
	Effect, Do string
}

// Change says what became of a thing between two versions.
type Change uint8

// The changes. Orphaned and Altered leave something of the old version behind: state, or records that nobody processes.
const (
	// Added: it is new.
	Added Change = iota
	// Orphaned: it is gone, and what it held stays behind.
	Orphaned
	// Renumbered: the tasks have other ids. Nothing is lost; local copies are made again.
	Renumbered
	// Altered: it is another thing under the same name.
	Altered
	// Adjusted: it is set differently, and takes over what is there.
	Adjusted
)

// String is a word for people.
func (c Change) String() string {
	switch c {
	case Added:
		return "added"
	case Orphaned:
		return "orphaned"
	case Renumbered:
		return "renumbered"
	case Altered:
		return "altered"
	case Adjusted:
		return "adjusted"
	default:
		return fmt.Sprintf("change-%d", uint8(c))
	}
}

// Breaks reports whether the new version does not take over all that the old one left.
func (d Difference) Breaks() bool { return d.Change == Orphaned || d.Change == Altered }

func (d Difference) String() string {
	text := fmt.Sprintf("%s %s: %s: %s", d.Kind, d.Name, d.Change, d.Effect)
	if d.Do != "" {
		text += "; " + d.Do
	}
	return text
}

// Compare says what a new version of a topology makes of the stores, internal topics and offsets of an old one, those that break something
// first. Versions with the same [Built.ShapeHash] may run side by side; others cannot share the tasks of a group, so all instances of the old
// version are to be stopped before one of the new begins.
func Compare(old, new *Built) []Difference { //nolint:revive // the words that everybody uses
	if old.application != new.application {
		return []Difference{{
			Kind: "application", Name: old.application, Change: Orphaned,
			Effect: fmt.Sprintf("it is %s now, which has offsets, stores and internal topics of its own", new.application),
			Do:     "keep the application id, or delete the group and the internal topics of the old one",
		}}
	}
	c := &comparison{old: old, new: new}
	c.stores()
	c.repartitions()
	c.sources()
	c.subtopologies()
	slices.SortStableFunc(c.found, func(x, y Difference) int { return cmp.Compare(rank(x), rank(y)) })
	return c.found
}

func rank(d Difference) int {
	if d.Breaks() {
		return 0
	}
	return 1
}

type comparison struct {
	old, new *Built
	found    []Difference
}

func (c *comparison) add(kind, name string, change Change, do, effect string, args ...any) {
	c.found = append(c.found, Difference{Kind: kind, Name: name, Change: change, Effect: fmt.Sprintf(effect, args...), Do: do})
}

func (b *Built) sortedStores() []*builtStore {
	var all []*builtStore
	for _, sub := range b.subs {
		all = append(all, sub.stores...)
	}
	slices.SortFunc(all, func(x, y *builtStore) int { return cmp.Compare(x.spec.Name, y.spec.Name) })
	return all
}

func (c *comparison) stores() {
	for _, was := range c.old.sortedStores() {
		if is := c.new.stores[was.spec.Name]; is != nil {
			c.store(was, is)
			continue
		}
		do := "give the store its name again"
		if heir := c.heir(was); heir != "" {
			do = fmt.Sprintf("name it: %s looks like the same store, named by its position", heir)
		}
		switch {
		case was.source != "":
			c.add("store", string(was.spec.Name), Orphaned, "", "nobody keeps it any more; its topic %s stays as it is", was.source)
		case was.changelog != "":
			c.add("store", string(was.spec.Name), Orphaned, do+", or delete the topic",
				"what it holds is not found any more; its changelog %s stays behind", was.changelog)
		default:
			c.add("store", string(was.spec.Name), Orphaned, do, "what it holds is lost: it has no changelog")
		}
	}
	for _, is := range c.new.sortedStores() {
		if c.old.stores[is.spec.Name] == nil {
			c.add("store", string(is.spec.Name), Added, "", "it is empty at first, and knows what is processed from now on")
		}
	}
}

// byPosition is a name that follows from the place of an operator.
var byPosition = regexp.MustCompile(`-[0-9]{10}`)

// heir is a new store that is the old one under the name of another position; empty when there is none, or more than one.
func (c *comparison) heir(was *builtStore) store.Name {
	if !byPosition.MatchString(string(was.spec.Name)) {
		return ""
	}
	blank := func(n store.Name) string { return byPosition.ReplaceAllString(string(n), "-") }
	var heirs []store.Name
	for _, is := range c.new.sortedStores() {
		if c.old.stores[is.spec.Name] == nil && is.spec.Kind == was.spec.Kind && blank(is.spec.Name) == blank(was.spec.Name) {
			heirs = append(heirs, is.spec.Name)
		}
	}
	if len(heirs) != 1 {
		return ""
	}
	return heirs[0]
}

// store compares two versions of one.
func (c *comparison) store(was, is *builtStore) {
	name, w, i := string(was.spec.Name), was.spec, is.spec
	anew := "give it another name, or reset the application"
	if w.Kind != i.Kind && !sameRows(w.Kind, i.Kind) {
		c.add("store", name, Altered, anew, "a %s store was a %s store: the rows in its changelog are others", i.Kind, w.Kind)
		return
	}
	if w.KeyFormat != i.KeyFormat || w.ValueFormat != i.ValueFormat {
		c.add("store", name, Altered, anew, "keys and values are %s and %s, they were %s and %s: what is there is read as what it is not",
			format(i.KeyFormat), format(i.ValueFormat), format(w.KeyFormat), format(w.ValueFormat))
	}
	if w.WindowSize != i.WindowSize {
		c.add("store", name, Altered, anew, "windows of %s were windows of %s: those that are there get another end", i.WindowSize, w.WindowSize)
	}
	if was.source != is.source {
		c.add("store", name, Altered, anew, "it is restored from %s, and was from %s", restoredFrom(is), restoredFrom(was))
	} else if w.NoChangelog != i.NoChangelog {
		c.add("store", name, Altered, "", "it is restored from %s, and was from %s", restoredFrom(is), restoredFrom(was))
	}
	if feeds, fed := c.feeds(was), c.feeds(is); feeds != fed && was.source == "" {
		c.add("store", name, Altered, "make sure that keys are in the same partitions, or "+anew,
			"its records come by %s, and came by %s: a key may be in another partition", fed, feeds)
	}
	switch {
	case i.Retention < w.Retention:
		c.add("store", name, Adjusted, "", "retention is %s, it was %s: what is older goes", i.Retention, w.Retention)
	case i.Retention > w.Retention:
		c.add("store", name, Adjusted, "raise retention.ms of "+was.changelog, "retention is %s, it was %s: the topic keeps less", i.Retention, w.Retention)
	}
	if w.InMemory != i.InMemory || w.SegmentInterval != i.SegmentInterval || w.Kind != i.Kind {
		c.add("store", name, Adjusted, "", "it is kept differently on disk: local copies are restored once")
	}
}

// sameRows reports whether two kinds differ in what they keep locally only.
func sameRows(a, b store.Kind) bool {
	plain := func(k store.Kind) store.Kind {
		switch k {
		case store.KindTimestampedKeyValue:
			return store.KindKeyValue
		case store.KindTimestampedWindow:
			return store.KindWindow
		default:
			return k
		}
	}
	return plain(a) == plain(b)
}

func format(name string) string { return cmp.Or(name, "bytes") }

func restoredFrom(s *builtStore) string { return cmp.Or(s.source, s.changelog, "nothing") }

// feeds are the topics by which records come to a store, without those whose names follow from positions.
func (c *comparison) feeds(s *builtStore) string {
	topics := make([]string, len(s.fedBy))
	for i, topic := range s.fedBy {
		topics[i] = byPosition.ReplaceAllString(topic, "-")
	}
	return strings.Join(topics, ", ")
}

func (c *comparison) repartitions() {
	was, is := c.old.repartitionDecls(), c.new.repartitionDecls()
	for _, topic := range c.old.RepartitionTopics() {
		n, there := is[topic]
		switch {
		case !there:
			c.add("repartition", topic, Orphaned, "stop the old version when its lag is 0, then delete the topic",
				"what is in it and not processed yet is lost")
		case n != was[topic]:
			c.add("repartition", topic, Altered, "reset the application, or keep the number",
				"%s partitions, it had %s: a topic that is there is refused", partitionsText(n), partitionsText(was[topic]))
		}
	}
	for _, topic := range c.new.RepartitionTopics() {
		if _, there := was[topic]; !there {
			c.add("repartition", topic, Added, "", "it is created")
		}
	}
}

func (b *Built) repartitionDecls() map[string]int32 {
	partitions := make(map[string]int32)
	for _, sub := range b.subs {
		for _, s := range sub.sources {
			if s.repartition != "" {
				partitions[s.topic] = s.partitions
			}
		}
	}
	return partitions
}

func partitionsText(n int32) string {
	if n == 0 {
		return "as many as its inputs have"
	}
	return fmt.Sprint(n)
}

func (c *comparison) sources() {
	for _, topic := range c.old.SourceTopics() {
		if _, there := c.new.bySource[topic]; !there {
			c.add("source", topic, Adjusted, "", "it is not read any more; the offsets of the group stay behind")
		}
	}
	for _, topic := range c.new.SourceTopics() {
		if _, there := c.old.bySource[topic]; !there {
			c.add("source", topic, Added, "", "it is read from where its offset reset says: %s", c.new.OffsetReset(topic))
		}
	}
}

// subtopologies says which ones have other numbers. They are known by a topic that they read.
func (c *comparison) subtopologies() {
	for _, was := range c.old.subs {
		for _, s := range was.sources {
			if e, there := c.new.bySource[s.topic]; there && e.sub.id != was.id {
				c.add("sub-topology", fmt.Sprint(was.id), Renumbered, "",
					"it is %d now (it reads %s): local copies of its stores are restored once", e.sub.id, s.topic)
				break
			}
		}
	}
}
