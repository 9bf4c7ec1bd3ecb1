package accumulate

import (
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"
)

type golden struct {
	f    Function
	in   []rec
	want string
}

func goldens() []golden {
	many := make([]rec, 70)
	for i := range many {
		many[i].value = int64(i)
	}
	return []golden{
		{Function{Kind: "count"}, nil, "0108a8"},
		{Function{Kind: "count"}, of(nil, nil), "0108a80200"},
		{Function{Kind: "count", Of: true}, of(nil, "a"), "014dad020101"},
		{Function{Kind: "sum", Type: "int"}, of(int64(-300), nil), "017508020101d704"},
		{Function{Kind: "sum", Type: "double"}, of(1.5), "015c1a010101000000000000f83f"},
		{Function{Kind: "min", Type: "string"}, of("abc"), "017ce70103616263"},
		{Function{Kind: "max", Type: "timestamp"}, of(time.Unix(1, 500)), "0100b50102f403"},
		{Function{Kind: "max", Type: "duration"}, of(time.Microsecond), "0122c001d00f"},
		{Function{Kind: "min", Type: "int"}, of(nil), "01b6b300"},
		{Function{Kind: "avg", Type: "int"}, of(int64(1<<62), int64(1<<62)), "01413d020102ffffffffffffffffff0102"},
		{Function{Kind: "avg", Type: "double"}, of(-0.5), "01db5c010101000000000000e0bf"},
		{Function{Kind: "first", Type: "bool"}, []rec{{at: 1000, value: true}}, "01593601d00f02"},
		{Function{Kind: "latest", Type: "bytes"}, []rec{{at: 1000, value: []byte{1, 2}}}, "01049e01d00f020102"},
		{Function{Kind: "latest", Type: "json"}, []rec{{at: 1000, value: json.RawMessage("[1]")}}, "01265e01d00f035b315d"},
		{Function{Kind: "top_k", Type: "string", K: 2}, []rec{{value: "a", by: int64(1)}, {value: "b", by: int64(2)}}, "01a9ee010102016204016102"},
		{Function{Kind: "distinct", Type: "int"}, of(int64(1), int64(2), int64(1)), "0157e601029599a4a217cb299fb02de844403ec7ea"},
		{Function{Kind: "distinct", Type: "int"}, many, "0157e60141468102c12781658111816f82dc03c120c3b301c309810bc473c28202c12b82aa01c13a824081b601c4038124c320820f8660c1ab01c5e3" +
			"01849b03c39401c18501821582910281990181398320c25cc1ab02c28802c604c14084800282448227c10bc2af01822fc258c2d401c138c520820284" +
			"8d02818901817a812dc2b101c2b2028207c17ac117827bc349c158c3ac01810b821a839702c21a816ac18601c37781fd01c331"},
		{Function{Kind: "quantile", Type: "double", Q: 0.5}, of(-1.0, 0.0, 1.0, 1.01, 500.0), "01366b010480900301ce8f0301ce8f0302bf0301"},
	}
}

// TestGolden: what is in stores and changelogs is read by the versions that follow. A change of these bytes needs another version.
func TestGolden(t *testing.T) {
	for _, tt := range goldens() {
		p := plan(t, tt.named())
		s := p.New()
		for _, r := range tt.in {
			if err := s.Add(r.time(), []Input{{Value: r.value, By: r.by}}); err != nil {
				t.Fatal(err)
			}
		}
		if got := hex.EncodeToString(p.AppendState(nil, s)); got != tt.want {
			t.Errorf("%s of %s, %d records: %s, want %s", tt.f.Kind, tt.f.Type, len(tt.in), got, tt.want)
		}
	}
}

func (g golden) named() Function {
	g.f.Name = "x"
	return g.f
}
