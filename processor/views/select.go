package views

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/decode"
	"github.com/statemesh/statemesh/store"
)

// Why a record is not in a view: metric labels, so constants.
const (
	dropNullKey      = "null key"
	dropEmptyKey     = "empty key"
	dropNullValue    = "null value"
	dropMissingField = "missing field"
	dropOverflow     = "sum out of range"
	dropOlder        = "older than the latest"
	dropLate         = "late"
	dropPartlyLate   = "late for some of its windows"
	dropHistory      = "older than the history"
)

// reasonForwarded is why a record of a repartition topic cannot be decoded.
const reasonForwarded = "invalid repartition record"

// scope is what the processors here use of a *processor.Context.
type scope interface {
	ForwardTo(child string, r processor.Record) error
	Drop(reason string)
	Store(name store.Name) (store.KeyValue, error)
	WindowStore(name store.Name) (store.Window, error)
	SessionStore(name store.Name) (store.Session, error)
	VersionedStore(name store.Name) (store.Versioned, error)
	CurrentStreamTime() int64
}

var _ scope = (*processor.Context)(nil)

// selector reads the records of a topic for all its views: it decodes each once and sends every view what it needs,
// under the view's key. A record is taken for all views or, when one of them cannot decode it, for none.
type selector struct {
	ctx      scope
	decoders []*shared
	targets  []target
}

// shared is a decoder and the fields its views ask for.
type shared struct {
	decoder decode.Decoder
	fields  []decode.Field
}

// target is one view of the topic.
type target struct {
	child string
	from  *shared
	key   []int // of from.fields; empty: the record's key
	field int   // of from.fields, -1 for none
	whole bool  // the view keeps the record's value

	// Of the record in hand.
	drop    string // why the record is not for this view; empty when it is
	keyData []byte // what it is stored under
	keyBuf  []byte // of keyData, when it has several parts
	value   [8]byte
}

// newSelector makes a selector for views of one topic; children[i] is the node that takes the records of views[i].
func newSelector(views []View, children []string) *selector {
	p := &selector{}
	made := make(map[string]*shared) // by format and columns
	for _, g := range groups(views) {
		made[g.id] = &shared{decoder: decode.New(string(g.format), g.columns, g.fields), fields: make([]decode.Field, len(g.fields))}
		p.decoders = append(p.decoders, made[g.id])
		for i, v := range views {
			if groupID(v) != g.id {
				continue
			}
			t := target{child: children[i], from: made[g.id], field: -1, whole: v.Type.keepsValue()}
			for _, k := range v.Key {
				t.key = append(t.key, slices.Index(g.fields, k))
			}
			if v.Type.ofField() {
				t.field = slices.Index(g.fields, v.Field)
			}
			p.targets = append(p.targets, t)
		}
	}
	return p
}

// group is the views of a topic that read its values the same way.
type group struct {
	id      string
	format  Format
	columns []string
	fields  []string // that any of them asks for
}

func groupID(v View) string {
	return string(v.Format) + "\x00" + strings.Join(v.Columns, "\x00")
}

func groups(views []View) []*group {
	var all []*group
	for _, v := range views {
		id := groupID(v)
		i := slices.IndexFunc(all, func(g *group) bool { return g.id == id })
		if i < 0 {
			i = len(all)
			all = append(all, &group{id: id, format: v.Format, columns: v.Columns})
		}
		fields := slices.Clone(v.Key)
		if v.Type.ofField() {
			fields = append(fields, v.Field)
		}
		for _, f := range fields {
			if !slices.Contains(all[i].fields, f) {
				all[i].fields = append(all[i].fields, f)
			}
		}
	}
	return all
}

// Init implements processor.Processor.
func (p *selector) Init(ctx *processor.Context) error {
	p.ctx = ctx
	return nil
}

// Close implements processor.Processor.
func (p *selector) Close() error { return nil }

// Process implements processor.Processor.
func (p *selector) Process(r *processor.Record) error {
	if r.Value != nil {
		for _, s := range p.decoders {
			if err := s.decoder.Decode(r.Value, s.fields); err != nil {
				return err
			}
		}
	}
	for i := range p.targets {
		if err := p.targets[i].take(r); err != nil {
			return err
		}
	}
	for i := range p.targets {
		t := &p.targets[i]
		if t.drop != "" {
			p.ctx.Drop(t.drop)
			continue
		}
		if err := p.ctx.ForwardTo(t.child, t.record(r)); err != nil {
			return err
		}
	}
	return nil
}

// take sets what the view gets of the record, or why it gets nothing.
func (t *target) take(r *processor.Record) error {
	t.drop = ""
	if r.Value == nil && (len(t.key) > 0 || !t.whole) {
		// Nothing says which key a null value is about, or there is nothing to aggregate (upstream's KStreamAggregate).
		t.drop = dropNullValue
		return nil
	}
	if err := t.takeKey(r); err != nil {
		return err
	}
	if t.field < 0 {
		return nil
	}
	// A number that is none refuses the record also when there is no key for it.
	x, ok, err := t.from.fields[t.field].AsNumber()
	switch {
	case err != nil:
		return err
	case !ok && t.drop == "":
		t.drop = dropMissingField
	}
	binary.BigEndian.PutUint64(t.value[:], math.Float64bits(x))
	return nil
}

func (t *target) takeKey(r *processor.Record) error {
	t.keyData = r.Key
	switch len(t.key) {
	case 0:
	case 1:
		data, ok, err := t.from.fields[t.key[0]].AsKey()
		if err != nil {
			return err
		}
		if t.keyData = data; !ok {
			t.keyData = nil
		} else if data == nil {
			t.keyData = t.keyBuf[:0]
		}
	default:
		t.keyBuf = t.keyBuf[:0]
		whole := true
		for i, slot := range t.key {
			data, ok, err := t.from.fields[slot].AsKey()
			if err != nil {
				return err
			}
			whole = whole && ok
			if i > 0 {
				t.keyBuf = append(t.keyBuf, '/')
			}
			t.keyBuf = decode.AppendKeyPart(t.keyBuf, data)
		}
		if t.keyData = t.keyBuf; !whole {
			t.keyData = nil
		}
	}
	switch {
	case t.keyData == nil:
		t.drop = dropNullKey
	case len(t.keyData) == 0:
		t.drop = dropEmptyKey
	}
	return nil
}

// record is what goes to the view: the whole value, the number, or nothing but the fact that there was a record.
// Headers stay behind.
func (t *target) record(r *processor.Record) processor.Record {
	out := processor.Record{Key: t.keyData, Timestamp: r.Timestamp}
	switch {
	case t.whole:
		out.Value = r.Value
	case t.field >= 0:
		out.Value = t.value[:]
	default:
		out.Value = t.value[:0]
	}
	return out
}

// forwardedNumber reads what record made of a number.
func forwardedNumber(r *processor.Record) (float64, error) {
	if len(r.Value) != 8 {
		return 0, decode.Undecodable(reasonForwarded, "value of %d bytes, want the 8 of a number", len(r.Value))
	}
	x := math.Float64frombits(binary.BigEndian.Uint64(r.Value))
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, decode.Undecodable(reasonForwarded, "%g is no number", x)
	}
	return x, nil
}
