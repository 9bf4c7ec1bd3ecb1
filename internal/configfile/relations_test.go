package configfile

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/expr"
)

// TestRelations: each part of a declared topology arrives where it belongs, with its place.
func TestRelations(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", "clickstream", "mesh.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := Load(Source{Path: "mesh.yaml", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	relations := make(map[string]declared.Relation)
	for _, r := range l.Config.Declared.Relations {
		relations[r.Name] = r
	}
	clicks := relations["clicks"]
	if clicks.Kind != declared.Stream || clicks.Source.Layout.Format != expr.CSV || len(clicks.Source.Layout.Header) != 8 ||
		clicks.Source.Timestamp.Text != "ts" || clicks.Place.Line == 0 {
		t.Errorf("clicks: %+v", clicks)
	}
	if c := clicks.Source.Layout.Columns[2]; c.Name != "page" || c.Type != expr.String || !c.Optional {
		t.Errorf("column page: %+v", c)
	}
	if pages := relations["pages"]; pages.Kind != declared.GlobalTable || pages.Source.Layout.KeyFormat != "string" || pages.KeyFormat != "" {
		t.Errorf("pages: %+v", pages)
	}
	page := relations["clicks_by_page"]
	if page.Kind != declared.Table || page.From != "clicks" || page.Aggregate.By.Text != "page" || len(page.Aggregate.Columns) != 4 {
		t.Errorf("clicks_by_page: %+v", page)
	}
	if c := page.Aggregate.Columns[3]; c.Function != declared.Quantile || c.Value.Text != "bytes" || c.Q != 0.95 || c.Place.Line == 0 {
		t.Errorf("p95: %+v", c)
	}
	if w := relations["sessions"].Aggregate.Window; w.Session != 30*time.Minute || w.Grace != 24*time.Hour {
		t.Errorf("sessions: %+v", w)
	}
	if j := relations["in_sections"].Joins[0]; j.With != "pages" || j.As != "p" || j.Kind != declared.Left || j.On.Text != "page" {
		t.Errorf("join: %+v", j)
	}
	if top := relations["top_pages"].Aggregate.Columns[0]; top.Function != declared.TopK || top.K != 10 || top.By.Text != "clicks" {
		t.Errorf("top: %+v", top)
	}
}
