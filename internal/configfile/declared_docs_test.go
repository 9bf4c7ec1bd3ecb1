package configfile

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDeclaredPage: what docs/declared.md shows is valid: its first example, and that one with the relations of all the others.
func TestDeclaredPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "declared.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 4 {
		t.Fatalf("%d examples", len(blocks))
	}
	whole := blocks[0][1]
	if _, err := Load(Source{Path: "first.yaml", Data: []byte(whole)}); err != nil {
		t.Error(err)
	}
	whole += "  clicks: {topic: clicks, format: json, columns: {page: string}}\n" +
		"  hourly: {from: clicks, group_by: page, window: {tumbling: 1h}, aggregate: {clicks: count}}\n"
	for _, b := range blocks[1:] {
		if strings.HasPrefix(b[1], "  ") { // relations
			whole += b[1]
		}
	}
	if _, err := Load(Source{Path: "all.yaml", Data: []byte(whole)}); err != nil {
		t.Errorf("%v\n%s", err, whole)
	}
}
