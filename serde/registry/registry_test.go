package registry_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/serde/registry"
)

// world is a registry of its own, over HTTP, that counts what it is asked.
type world struct {
	*srfake.Registry
	asked atomic.Int64
	away  atomic.Int64 // the status that it answers with instead
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{Registry: srfake.New()}
	w.Intercept(func(rw http.ResponseWriter, _ *http.Request) bool {
		w.asked.Add(1)
		if status := w.away.Load(); status != 0 {
			http.Error(rw, `{"error_code":50001,"message":"down"}`, int(status))
			return true
		}
		return false
	})
	tb.Cleanup(w.Close)
	return w
}

func (w *world) client(tb testing.TB, change func(*registry.Config)) *registry.Client {
	tb.Helper()
	cfg := registry.Config{URLs: []string{w.URL()}, AutoRegister: true, RetryAfter: time.Hour}
	if change != nil {
		change(&cfg)
	}
	c, err := registry.New(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

const (
	flightV1 = `{"type":"record","name":"Flight","namespace":"air","fields":[{"name":"carrier","type":"string"},{"name":"delay","type":["null","int"]}]}`
	flightV2 = `{"type":"record","name":"Flight","namespace":"air","fields":[{"name":"carrier","type":"string"},{"name":"delay","type":["null","long"]},{"name":"dest","type":"string","default":"?"}]}`
)

type flight struct {
	Carrier string `avro:"carrier" json:"carrier"`
	Delay   *int32 `avro:"delay"   json:"delay"`
}

type flight2 struct {
	Carrier string `avro:"carrier"`
	Delay   *int64 `avro:"delay"`
	Dest    string `avro:"dest"`
}

// A zero byte, the id in four bytes, then Avro's: length and text, branch of the union, zig-zag number.
func TestAvroBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := must(registry.Avro[flight](w.client(t, nil), flightV1)).ForTopic("flights", serde.Value)
	b, err := s.Encode(flight{"UA", new(int32(-2))})
	if err != nil || hex.EncodeToString(b) != "0000000001"+"045541"+"02"+"03" {
		t.Fatalf("%x, %v", b, err)
	}
	back, err := s.Decode(b)
	if err != nil || back.Carrier != "UA" || *back.Delay != -2 {
		t.Fatal(back, err)
	}
	if got, ok := w.GetSchema("flights-value", 1); !ok || got.ID != 1 || got.Schema.Schema != flightV1 {
		t.Fatal(got, ok)
	}
	asked := w.asked.Load()
	for range 100 {
		if b, err = s.Append(b[:0], flight{"UA", nil}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Decode(b); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.asked.Load() - asked; n != 0 {
		t.Errorf("%d requests for a schema that is known", n)
	}
	if s.Format() != serde.FormatAvro || s.Name() != "avro air.Flight" {
		t.Error(s.Format(), s.Name())
	}
}

// Bytes of another version are read as this one; what cannot be is refused for good.
func TestAvroEvolves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client(t, nil)
	old := must(registry.Avro[flight](c, flightV1)).ForTopic("flights", serde.Value)
	b := must(old.Encode(flight{"UA", new(int32(7))}))
	now := must(registry.Avro[flight2](c, flightV2))
	f, err := now.Decode(b)
	if err != nil || f.Carrier != "UA" || *f.Delay != 7 || f.Dest != "?" {
		t.Fatal(f, err)
	}
	number := must(registry.Avro[int64](c, `"long"`))
	_, err = number.Decode(b)
	e, ok := errors.AsType[*registry.IncompatibleError](err)
	if !ok || e.ID != 1 || !errors.Is(err, registry.ErrIncompatible) || !errors.Is(err, serde.ErrDecode) || errors.Is(err, serde.ErrEncode) {
		t.Fatal(err)
	}
	if _, err := must(registry.JSONSchema[flight](c, `{}`)).Decode(b); !errors.Is(err, registry.ErrIncompatible) {
		t.Fatal(err)
	}
}

// A schema that refers to others is read with them, each once and before what needs it.
func TestAvroReferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.SeedSchema("code", 1, 10, sr.Schema{Schema: `{"type":"record","name":"Code","fields":[{"name":"c","type":"string"}]}`})
	w.SeedSchema("airport", 1, 11, sr.Schema{
		Schema:     `{"type":"record","name":"Airport","fields":[{"name":"code","type":"Code"}]}`,
		References: []sr.SchemaReference{{Name: "Code", Subject: "code", Version: 1}},
	})
	w.SeedSchema("leg-value", 1, 12, sr.Schema{
		Schema: `{"type":"record","name":"Leg","fields":[{"name":"from","type":"Airport"},{"name":"airline","type":"Code"}]}`,
		References: []sr.SchemaReference{
			{Name: "Airport", Subject: "airport", Version: 1}, {Name: "Code", Subject: "code", Version: 1},
		},
	})
	whole := `{"type":"record","name":"Leg","fields":[
		{"name":"from","type":{"type":"record","name":"Airport","fields":[{"name":"code","type":{"type":"record","name":"Code","fields":[{"name":"c","type":"string"}]}}]}},
		{"name":"airline","type":"Code"}]}`
	s := must(registry.Avro[map[string]any](w.client(t, nil), whole))
	v, err := s.Decode([]byte("\x00\x00\x00\x00\x0c\x06EWR\x04UA"))
	want := map[string]any{"from": map[string]any{"code": map[string]any{"c": "EWR"}}, "airline": map[string]any{"c": "UA"}}
	if err != nil || !reflect.DeepEqual(v, want) {
		t.Fatal(v, err)
	}
	if n := w.asked.Load(); n != 3 {
		t.Errorf("%d requests for three schemas", n)
	}
}

// Bare bytes have no length: upstream writes them so.
func TestAvroBareBytes(t *testing.T) {
	t.Parallel()
	s := must(registry.Avro[[]byte](newWorld(t).client(t, nil), `"bytes"`)).ForTopic("raw", serde.Key)
	for _, v := range [][]byte{{}, {1, 2}} {
		b, err := s.Encode(v)
		if err != nil || !bytes.Equal(b, append([]byte{0, 0, 0, 0, 1}, v...)) {
			t.Fatalf("%x, %v", b, err)
		}
		if back, err := s.Decode(b); err != nil || back == nil || !bytes.Equal(back, v) {
			t.Fatalf("%x, %v", back, err)
		}
	}
}

func TestJSONSchemaBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := must(registry.JSONSchema[flight](w.client(t, nil), `{"title":"Flight","type":"object"}`)).ForTopic("flights", serde.Value)
	b, err := s.Encode(flight{"UA", nil})
	if err != nil || string(b) != "\x00\x00\x00\x00\x01"+`{"carrier":"UA","delay":null}` {
		t.Fatalf("%q, %v", b, err)
	}
	if back, err := s.Decode(b); err != nil || back.Carrier != "UA" {
		t.Fatal(back, err)
	}
	if got, ok := w.GetSchema("flights-value", 1); !ok || got.Type != sr.TypeJSON {
		t.Fatal(got, ok)
	}
	if _, err := s.Decode(b[:5]); !errors.Is(err, serde.ErrDecode) {
		t.Fatal(err)
	}
}

// The first message of a file is one 0, another the number of indexes and they, as zig-zag varints.
func TestProtobufBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client(t, nil)
	first := registry.Protobuf[*wrapperspb.DoubleValue](c).ForTopic("double", serde.Value)
	b, err := first.Encode(wrapperspb.Double(1.5))
	if err != nil || hex.EncodeToString(b) != "0000000001"+"00"+"09000000000000f83f" {
		t.Fatalf("%x, %v", b, err)
	}
	if back, err := first.Decode(b); err != nil || back.GetValue() != 1.5 {
		t.Fatal(back, err)
	}
	// The same place with the length in front, as other writers have it.
	if back, err := first.Decode(append([]byte{0, 0, 0, 0, 1, 2, 0}, b[6:]...)); err != nil || back.GetValue() != 1.5 {
		t.Fatal(back, err)
	}
	nested := registry.Protobuf[*descriptorpb.DescriptorProto_ReservedRange](c).ForTopic("range", serde.Value)
	if b, err = nested.Encode(&descriptorpb.DescriptorProto_ReservedRange{Start: new(int32(3))}); err != nil ||
		hex.EncodeToString(b) != "0000000002"+"04"+"04"+"02"+"0803" {
		t.Fatalf("%x, %v", b, err)
	}
	if back, err := nested.Decode(b); err != nil || back.GetStart() != 3 {
		t.Fatal(back, err)
	}
	if b, err = first.Encode(wrapperspb.Double(0)); err != nil || len(b) != 6 {
		t.Fatalf("%x, %v", b, err)
	}
	// Another message of the file, and another kind of schema.
	other := registry.Protobuf[*wrapperspb.FloatValue](c)
	if _, err := other.Decode(b); !errors.Is(err, registry.ErrIncompatible) || !strings.Contains(err.Error(), "message google.protobuf.DoubleValue") {
		t.Fatal(err)
	}
	if _, err := first.Decode([]byte{0, 0, 0, 0, 1, 2, 120}); !errors.Is(err, registry.ErrIncompatible) {
		t.Fatal(err)
	}
	avro := must(must(registry.Avro[int64](c, `"long"`)).ForTopic("n", serde.Value).Encode(1))
	if _, err := first.Decode(avro); !errors.Is(err, registry.ErrIncompatible) {
		t.Fatal(err)
	}
}

// The files that a file imports are registered before it, Google's own are not.
func TestProtobufReferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := registry.Protobuf[*statemeshv1.GetRequest](w.client(t, nil)).ForTopic("gets", serde.Value)
	want := &statemeshv1.GetRequest{Store: "counts", Key: []byte("k"), Options: &statemeshv1.ReadOptions{MaxStaleness: durationpb.New(1)}}
	b, err := s.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := s.Decode(b); err != nil || !proto.Equal(back, want) {
		t.Fatal(back, err)
	}
	got, ok := w.GetSchema("gets-value", 1)
	if !ok || len(got.References) != 1 || got.References[0] != (sr.SchemaReference{Name: "statemesh/v1/common.proto", Subject: "statemesh/v1/common.proto", Version: 1}) {
		t.Fatal(got, ok)
	}
	if common, ok := w.GetSchema("statemesh/v1/common.proto", 1); !ok || len(common.References) != 0 {
		t.Fatal(common, ok)
	}
}

// A registry that knows files only as text is taken at the place of the message.
func TestProtobufText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.SeedSchema("x", 1, 5, sr.Schema{Schema: `syntax = "proto3"; message A {} message B {}`, Type: sr.TypeProtobuf})
	s := registry.Protobuf[*wrapperspb.DoubleValue](w.client(t, nil))
	if _, err := s.Decode([]byte{0, 0, 0, 0, 5, 0}); err != nil {
		t.Error(err)
	}
	if _, err := s.Decode([]byte{0, 0, 0, 0, 5, 2, 2}); !errors.Is(err, registry.ErrIncompatible) {
		t.Error(err)
	}
	// A file's descriptor under its id, written by somebody else.
	file := must(proto.Marshal(protodesc.ToFileDescriptorProto(wrapperspb.File_google_protobuf_wrappers_proto)))
	w.SeedSchema("y", 1, 6, sr.Schema{Schema: base64.StdEncoding.EncodeToString(file), Type: sr.TypeProtobuf})
	if _, err := s.Decode([]byte{0, 0, 0, 0, 6, 0}); err != nil {
		t.Error(err)
	}
	if _, err := s.Decode([]byte{0, 0, 0, 0, 6, 4, 0, 0}); !errors.Is(err, registry.ErrIncompatible) {
		t.Error(err)
	}
}

// An id that nobody knows is asked for once in a while, not with every record; what was learned later is found.
func TestUnknownID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := must(registry.Avro[flight](w.client(t, nil), flightV1))
	for range 50 {
		_, err := s.Decode([]byte{0, 0, 0, 0, 99, 0})
		e, ok := errors.AsType[*registry.UnknownSchemaError](err)
		if !ok || e.ID != 99 || !errors.Is(err, registry.ErrUnknownSchema) || !errors.Is(err, serde.ErrDecode) {
			t.Fatal(err)
		}
	}
	if n := w.asked.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	eager := must(registry.Avro[flight](w.client(t, func(c *registry.Config) { c.RetryAfter = 1 }), flightV1))
	if _, err := eager.Decode([]byte{0, 0, 0, 0, 99, 0, 0}); !errors.Is(err, registry.ErrUnknownSchema) {
		t.Fatal(err)
	}
	w.SeedSchema("x", 1, 99, sr.Schema{Schema: flightV1})
	if _, err := eager.Decode([]byte{0, 0, 0, 0, 99, 0, 0}); err != nil {
		t.Fatal(err)
	}
}

// An id that nobody knew is known once the registry gave it to this client, long before RetryAfter is over: to every serde.
func TestUnknownUntilGiven(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client(t, nil)
	flights := must(registry.Avro[flight](c, flightV1)).ForTopic("flights", serde.Value)
	values := registry.Protobuf[*structpb.Value](c).ForTopic("values", serde.Value)
	for id, decode := range []func([]byte) error{
		func(b []byte) error { _, err := flights.Decode(b); return err },
		func(b []byte) error { _, err := values.Decode(b); return err },
	} {
		err := decode([]byte{0, 0, 0, 0, byte(id + 1), 2, 2})
		if _, ok := errors.AsType[*registry.UnknownSchemaError](err); !ok {
			t.Fatal(err)
		}
	}
	if _, err := flights.Decode(must(flights.Encode(flight{"UA", nil}))); err != nil {
		t.Error(err)
	}
	if _, err := values.Decode(must(values.Encode(structpb.NewStringValue("x")))); err != nil {
		t.Error(err)
	}
}

// A registry that is away says nothing about the bytes: no record may be skipped for it.
func TestAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := must(registry.Avro[flight](w.client(t, nil), flightV1)).ForTopic("flights", serde.Value)
	b := must(s.Encode(flight{Carrier: "UA"}))
	if _, err := s.Decode(b); err != nil {
		t.Fatal(err)
	}
	w.away.Store(http.StatusServiceUnavailable)
	if _, err := s.Decode(b); err != nil {
		t.Fatal("what is known needs no registry", err)
	}
	asked := w.asked.Load()
	unavailable := func(err error) {
		t.Helper()
		if !errors.Is(err, serde.ErrUnavailable) || errors.Is(err, serde.ErrDecode) || errors.Is(err, serde.ErrEncode) {
			t.Fatal(err)
		}
	}
	for range 10 {
		_, err := s.Decode([]byte{0, 0, 0, 0, 50, 0})
		unavailable(err)
		_, err = s.ForTopic("other", serde.Value).Encode(flight{})
		unavailable(err)
	}
	if n := w.asked.Load() - asked; n != 1 {
		t.Errorf("%d requests to a registry that is away", n)
	}
	dead := newWorld(t)
	dead.Close()
	_, err := must(registry.Avro[flight](dead.client(t, nil), flightV1)).Decode(b)
	unavailable(err)
	locked := newWorld(t)
	locked.away.Store(http.StatusUnauthorized)
	_, err = must(registry.Avro[flight](locked.client(t, nil), flightV1)).Decode(b)
	unavailable(err)
}

// Without AutoRegister nothing is written under a schema that nobody registered.
func TestNoAutoRegister(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client(t, func(c *registry.Config) { c.AutoRegister = false })
	s := must(registry.Avro[flight](c, flightV1)).ForTopic("flights", serde.Value)
	_, err := s.Encode(flight{})
	e, ok := errors.AsType[*registry.UnknownSchemaError](err)
	if !ok || e.Subject != "flights-value" || !errors.Is(err, serde.ErrEncode) || errors.Is(err, serde.ErrDecode) {
		t.Fatal(err)
	}
	if w.SubjectExists("flights-value") {
		t.Fatal("it was registered")
	}
	w.SeedSchema("there-value", 1, 33, sr.Schema{Schema: flightV1})
	if b, err := s.ForTopic("there", serde.Value).Encode(flight{}); err != nil || binary.BigEndian.Uint32(b[1:]) != 33 {
		t.Fatalf("%x, %v", b, err)
	}
}

// What the registry refuses is about the value, and names the subject.
func TestIncompatibleWrite(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusConflict, http.StatusUnprocessableEntity} {
		w := newWorld(t)
		w.away.Store(int64(status))
		_, err := must(registry.Avro[flight](w.client(t, nil), flightV1)).ForTopic("flights", serde.Value).Encode(flight{})
		e, ok := errors.AsType[*registry.IncompatibleError](err)
		if !ok || e.Subject != "flights-value" || !errors.Is(err, registry.ErrIncompatible) || !errors.Is(err, serde.ErrEncode) {
			t.Fatal(err)
		}
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for want, name := range map[string]registry.SubjectName{
		"flights-key": registry.TopicName, "air.Flight": registry.RecordName, "flights-air.Flight": registry.TopicRecordName,
	} {
		c := w.client(t, func(c *registry.Config) { c.Subject = name })
		s := must(registry.Avro[flight](c, flightV1))
		if _, err := s.ForTopic("flights", serde.Key).Encode(flight{}); err != nil || !w.SubjectExists(want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := must(registry.Avro[flight](w.client(t, nil), flightV1)).Encode(flight{}); !errors.Is(err, serde.ErrEncode) || !strings.Contains(err.Error(), "ForTopic") {
		t.Error(err)
	}
	c := w.client(t, func(c *registry.Config) { c.Subject = registry.RecordName })
	if _, err := must(registry.Avro[int64](c, `"long"`)).ForTopic("n", serde.Key).Encode(1); !errors.Is(err, serde.ErrEncode) {
		t.Error(err)
	}
}

// Many threads that meet a schema at once ask once.
func TestOneQuestion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.SeedSchema("x", 1, 3, sr.Schema{Schema: flightV1})
	s := must(registry.Avro[flight](w.client(t, nil), flightV1)).ForTopic("flights", serde.Value)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := s.Decode([]byte{0, 0, 0, 0, 3, 0, 0}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := w.asked.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// Errors hold nothing of the data.
func TestErrorsHoldNoData(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client(t, nil)
	s := must(registry.Avro[flight](c, flightV1)).ForTopic("flights", serde.Value)
	must(s.Encode(flight{}))
	narrow := must(registry.Avro[map[string]int8](c, `{"type":"map","values":"string"}`)).ForTopic("m", serde.Value)
	text := must(registry.Avro[map[string]string](c, `{"type":"map","values":"string"}`)).ForTopic("m", serde.Value)
	secret := must(text.Encode(map[string]string{"hunter2": "hunter2"}))
	for _, err := range []error{
		second(s.Decode([]byte("hunter2"))),
		second(s.Decode([]byte("\x00\x00\x00\x00\x01\x0ehunter2"))),
		second(s.Decode([]byte("\x00\x00\x00\x00\x01\x0ehunter2\x00hunter2"))),
		second(s.Decode([]byte("\x00\x00\x00\x00\x01\x0ehunter2\x08"))),
		second(s.Decode([]byte{0, 0, 0})),
		second(narrow.Decode(secret)),
	} {
		if !errors.Is(err, serde.ErrDecode) || strings.Contains(err.Error(), "unter2") {
			t.Error(err)
		}
	}
	generic := must(registry.Avro[any](c, flightV1)).ForTopic("flights", serde.Value)
	if _, err := generic.Encode(map[string]any{"carrier": "UA", "delay": "hunter2"}); !errors.Is(err, serde.ErrEncode) || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// A program without types reads what the registry describes as JSON.
func TestFormats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client(t, nil)
	formats := serde.Builtin().With(c.Formats()...)
	value := flight{"UA", new(int32(7))}
	for name, b := range map[string][]byte{
		serde.FormatAvro:       must(must(registry.Avro[flight](c, flightV1)).ForTopic("a", serde.Value).Encode(value)),
		serde.FormatJSONSchema: must(must(registry.JSONSchema[flight](c, `{}`)).ForTopic("j", serde.Value).Encode(value)),
	} {
		f, err := formats.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := f.Decode(b)
		var got flight
		raw, _ := v.(json.RawMessage)
		if err != nil || json.Unmarshal(raw, &got) != nil || got.Carrier != "UA" || *got.Delay != 7 {
			t.Fatalf("%s: %s, %v", name, raw, err)
		}
		if _, err := f.Encode(v); !errors.Is(err, serde.ErrEncode) {
			t.Error(err)
		}
		if _, err := f.Parse("{}"); !errors.Is(err, serde.ErrEncode) {
			t.Error(err)
		}
		if _, err := f.Decode(b[:3]); !errors.Is(err, serde.ErrDecode) {
			t.Error(err)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]registry.Config{
		"no urls":          {},
		"want http":        {URLs: []string{"registry:8081"}},
		"belong in User":   {URLs: []string{"http://me:hunter2@registry:8081"}},
		"token and user":   {URLs: []string{"http://r"}, Token: "t", User: "u"},
		"want more than 0": {URLs: []string{"http://r"}, Timeout: -1},
	} {
		_, err := registry.New(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := registry.Avro[int](newWorld(t).client(t, nil), `{"type":"nothing"}`); err == nil {
		t.Error("a schema that is none")
	}
	if _, err := registry.JSONSchema[int](newWorld(t).client(t, nil), `{`); err == nil {
		t.Error("a schema that is none")
	}
}

func TestAuthenticates(t *testing.T) {
	t.Parallel()
	reg := srfake.New(srfake.WithAuth("Basic " + base64.StdEncoding.EncodeToString([]byte("me:it"))))
	t.Cleanup(reg.Close)
	c := must(registry.New(t.Context(), registry.Config{URLs: []string{reg.URL()}, User: "me", Password: "it", AutoRegister: true}))
	if _, err := must(registry.Avro[int64](c, `"long"`)).ForTopic("n", serde.Key).Encode(1); err != nil {
		t.Fatal(err)
	}
}
