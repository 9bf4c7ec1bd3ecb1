package flights

import (
	"os"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/statemesh/statemesh/processor/views"
)

// The views that people copy have the columns of the rows they read, and are valid.
func TestMeshFileFitsTheRows(t *testing.T) {
	data, err := os.ReadFile("mesh.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var mesh struct {
		Views []struct {
			Name, Topic, Format, Type, Key, Field string
			Columns                               []string
		}
	}
	if err := yaml.Unmarshal(data, &mesh); err != nil {
		t.Fatal(err)
	}
	var all []views.View
	for _, v := range mesh.Views {
		if !slices.Equal(v.Columns, Columns()) {
			t.Errorf("%s: columns %v, want %v", v.Name, v.Columns, Columns())
		}
		view := views.View{
			Name: v.Name, Topic: v.Topic, Format: views.Format(v.Format), Columns: v.Columns,
			Type: views.Type(v.Type), Field: v.Field,
		}
		if v.Key != "" {
			view.Key = []string{v.Key}
		}
		all = append(all, view)
	}
	if len(all) != 4 {
		t.Errorf("%d views, want 4", len(all))
	}
	if err := views.Validate(all); err != nil {
		t.Error(err)
	}
}
