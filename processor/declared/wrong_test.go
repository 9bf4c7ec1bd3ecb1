package declared

import (
	"testing"
	"time"
)

// derived is a relation made of another, changed by f.
func derived(kind Kind, from string, f func(r *Relation)) Relation {
	r := Relation{Name: "r", Kind: kind, From: from, Place: Place{"t.yaml", 7, 3}}
	if f != nil {
		f(&r)
	}
	return r
}

// around are relations that nothing is wrong with.
func around() []Relation {
	global, versioned := table("everywhere", "everywhere"), table("versioned", "versioned")
	global.Kind = GlobalTable
	versioned.Source.History = time.Minute
	windowed := agg(Aggregate{By: ref("carrier"), Window: Window{Tumbling: second}})
	windowed.Name, windowed.Sink = "hourly", nil
	return []Relation{stream("flights", "flights"), stream("others", "others"), table("people", "people"), global, versioned, windowed}
}

// TestAllAtOnce: one mistake does not hide another one.
func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	a, b := derived(Stream, "nowhere", nil), derived(Stream, "flights", func(r *Relation) { r.Where, r.Key = ref("x"), ref("y") })
	b.Name = "b"
	err := Validate(Topology{Relations: append(around(), a, b)})
	if n := len(err.(interface{ Unwrap() []error }).Unwrap()); n != 3 {
		t.Errorf("%d findings: %v", n, err)
	}
}

// FuzzValidate: no declaration makes Validate panic.
func FuzzValidate(f *testing.F) {
	f.Add("r", "stream", "flights", "people", "carrier", "delay > 1", int64(1), int64(0))
	f.Add("flights", "table", "hourly", "hourly", "window.start", "has(n)", int64(-1), int64(1<<62))
	f.Fuzz(func(t *testing.T, name, kind, from, with, on, text string, d, e int64) {
		a := &Aggregate{By: ref(on), Window: Window{Hopping: time.Duration(d), Advance: time.Duration(e)}, Columns: []AggregateColumn{
			{Name: with, Function: Function(kind), Value: ref(text), By: ref(on), K: int(d)}, {Name: "n", Function: Count},
		}}
		r := Relation{
			Name: name, Kind: Kind(kind), From: from, Where: ref(text), Select: sel(name, text), Key: ref(on), KeyFormat: with,
			Each:  &Column{Name: on, Value: src(text)},
			Joins: []Join{{With: with, Kind: JoinKind(kind), On: ref(on), OtherOn: ref(text), Before: time.Duration(d), Grace: time.Duration(e)}},
			Sink:  sink(from), Suppress: &Suppress{Until: time.Duration(d), MaxBytes: e}, Store: StoreOptions{Retention: time.Duration(e)},
		}
		grouped := r
		grouped.Joins, grouped.Aggregate, grouped.Key, grouped.KeyFormat, grouped.Name = nil, a, nil, "", name+"2"
		for _, one := range []Relation{r, grouped} {
			_ = Validate(Topology{Relations: append(around(), one)}) // it must return
		}
	})
}
