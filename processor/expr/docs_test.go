package expr

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/processor"
)

// page is what docs/expressions.md says: a record, and expressions over it.
type page struct {
	schema   *Schema
	record   processor.Record
	meta     processor.RecordMetadata
	examples [][2]string
}

var (
	row     = regexp.MustCompile("(?m)^\\| `(.*?)` \\| (.*) \\|$")
	pageFor = "../../docs/expressions.md"
)

// readPage reads the page. The record's key and what else is told in a sentence is repeated here.
func readPage(t *testing.T) page {
	t.Helper()
	data, err := os.ReadFile(pageFor)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	_, after, _ := strings.Cut(text, "## The record of the examples")
	about, rest, _ := strings.Cut(after, "## Names")
	l := Layout{Format: JSONObject, KeyFormat: "string", KeyOptional: true}
	for _, m := range row.FindAllStringSubmatch(about, -1) {
		typ, optional, _ := strings.Cut(strings.TrimSuffix(m[2], " |"), " | ")
		parsed, err := ParseType(strings.Trim(typ, "`| "))
		if err != nil {
			t.Fatal(err)
		}
		l.Columns = append(l.Columns, Column{Name: m[1], Type: parsed, Optional: strings.Contains(optional, "optional")})
	}
	s, err := NewSchema(l)
	if err != nil {
		t.Fatal(err)
	}
	_, value, _ := strings.Cut(about, "```json\n")
	value, _, _ = strings.Cut(value, "```")
	p := page{
		schema: s,
		record: processor.Record{
			Key: []byte("EWR"), Value: []byte(value), Timestamp: 1357035600000,
			Headers: []processor.Header{{Key: "source", Value: []byte("old")}, {Key: "source", Value: []byte("bts")}},
		},
		meta: processor.RecordMetadata{Topic: "flights", Partition: 1, Offset: 42},
	}
	for section := range strings.SplitSeq(rest, "| expression | result |\n") {
		table, _, _ := strings.Cut(section, "\n\n")
		if !strings.HasPrefix(table, "|---|") {
			continue
		}
		for _, m := range row.FindAllStringSubmatch(table, -1) {
			p.examples = append(p.examples, [2]string{strings.ReplaceAll(m[1], `\|`, "|"), m[2]})
		}
	}
	if len(l.Columns) != 9 || len(p.examples) < 100 {
		t.Fatalf("%d columns, %d examples", len(l.Columns), len(p.examples))
	}
	return p
}

func TestExamplesOfThePage(t *testing.T) {
	t.Parallel()
	page := readPage(t)
	for _, x := range page.examples {
		text, want := x[0], x[1]
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			p, err := Compile(Source{File: "f", Line: 1, Column: 1, Text: text}, page.schema, Any)
			if refusal, ok := strings.CutPrefix(want, "not accepted: "); ok {
				if err == nil || !strings.Contains(err.Error(), refusal) {
					t.Errorf("%v, want %q", err, refusal)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r, err := page.schema.NewRow(p)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // what is kept between records must not show
				if err := r.Set(&page.record, page.meta); err != nil {
					t.Fatal(err)
				}
				got, err := p.AppendJSON([]byte("x"), r)
				if reason, ok := strings.CutPrefix(want, "error: "); ok {
					if reasonOf(err) != reason {
						t.Errorf("%s, %v, want %s", got, err, reason)
					}
				} else if err != nil || "x"+strings.Trim(want, "`") != string(got) {
					t.Errorf("%s, %v, want %s", got, err, want)
				}
			}
		})
	}
}

// TestPageListsReasonsAndFunctions: what there is and what the page says are the same.
func TestPageListsReasonsAndFunctions(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(pageFor)
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{
		ReasonNull, ReasonType, ReasonMissing, ReasonArithmetic, ReasonConversion, ReasonArgument, ReasonRange, ReasonLarge, ReasonCost,
		reasonMissingField, reasonNullValue, reasonNullKey, reasonBadKey, reasonColumnType, reasonTimestamp, reasonDuration, reasonBase64,
	} {
		if !strings.Contains(string(data), "`"+reason+"`") {
			t.Errorf("the page lacks the reason %q", reason)
		}
	}
	page := readPage(t)
	var unknown []string
	for name := range page.schema.env.Functions() {
		plain := strings.HasPrefix(name, "_") || strings.ContainsAny(name, "@!") || name == "-_"
		if !plain && !strings.Contains(string(data), name) && !slices.Contains(unlisted, name) {
			unknown = append(unknown, name)
		}
	}
	if slices.Sort(unknown); len(unknown) > 0 {
		t.Errorf("the page lacks %q", unknown)
	}
}

// unlisted is what CEL has and nobody here needs: it works, but the page spares the reader.
var unlisted = []string{"dyn", "uint", "optional.none", "optional.of", "optional.ofNonZeroValue", "optional.unwrap", "unwrapOpt", "value", "or", "first"}

func reasonOf(err error) string {
	switch e := err.(type) { //nolint:errorlint // they are not wrapped
	case *EvalError:
		return e.Reason
	case *processor.DeserializationError:
		return e.Reason
	case nil:
		return ""
	default:
		return err.Error()
	}
}
