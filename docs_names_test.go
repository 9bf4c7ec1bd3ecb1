package statemesh

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// speaks are the packages whose names docs/from-kafka-streams.md may use without saying where they are from.
var speaks = []string{".", "processor", "processor/streams", "processor/streamstest", "processor/windows", "client", "serde", "store", "router"}

// exported are the names of packages: "Name", "pkg.Name", "Type.Member", "pkg.Type.Member".
func exported(t *testing.T, dirs []string) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				addDecl(d, func(of, member string) {
					if of != "" {
						member = of + "." + member
					}
					names[member], names[f.Name.Name+"."+member] = true, true
				})
			}
		}
	}
	return names
}

func addDecl(d ast.Decl, add func(of, member string)) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		of := ""
		if d.Recv != nil {
			of = typeName(d.Recv.List[0].Type)
		}
		add(of, d.Name.Name)
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					add("", n.Name)
				}
			case *ast.TypeSpec:
				add("", s.Name.Name)
				if st, ok := s.Type.(*ast.StructType); ok {
					for _, f := range st.Fields.List {
						for _, n := range f.Names {
							add(s.Name.Name, n.Name)
						}
					}
				}
			}
		}
	}
}

// typeName is that of a receiver, without its pointer and type parameters.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	default:
		return ""
	}
}

// TestNamesBesideKafkaStreams: what docs/from-kafka-streams.md names on our side is there: exported names, and settings.
func TestNamesBesideKafkaStreams(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/from-kafka-streams.md")
	if err != nil {
		t.Fatal(err)
	}
	settings, err := os.ReadFile("docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	names := exported(t, speaks)
	word, name, setting := regexp.MustCompile("`([^`]+)`"), regexp.MustCompile(`^([a-z]+\.)?[A-Z]\w*(\.[A-Z]\w*)?$`), regexp.MustCompile(`^[a-z]+(\.[a-z]+)+$`)
	checked := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		for _, m := range word.FindAllStringSubmatch(cells[2], -1) {
			switch w := m[1]; {
			case name.MatchString(w) && !names[w] && !upstreams[w]:
				t.Errorf("%s: nothing exported is called so", w)
			case setting.MatchString(w) && !upstreams[w] && !strings.Contains(string(settings), "`"+w+"`"):
				t.Errorf("%s: no setting is called so", w)
			default:
				checked++
			}
		}
	}
	if checked < 200 {
		t.Errorf("%d names were looked at: is the page read as it is written?", checked)
	}
}

// upstreams are words of Kafka's that stand on our side.
var upstreams = map[string]bool{
	"Branched.withFunction": true, "Joined.withGracePeriod": true, "TableJoined.withOtherPartitioner": true, "CloseOptions": true, "delete.retention.ms": true,
}
