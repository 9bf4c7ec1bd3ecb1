package clicks_test

import (
	"testing"

	"github.com/statemesh/statemesh/examples/clicks"
)

func TestRows(t *testing.T) {
	t.Parallel()
	var n int
	var first, last int64
	users, pages, types := make(map[string]int), make(map[string]int), make(map[string]int)
	for r, err := range clicks.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			first = r.EventTime
			if got := string(r.Value()); got != "1995-08-30T03:53:25Z,host195,/Software.html,GET,html,200,1497,1" || r.User != "host195" || r.Page != "/Software.html" {
				t.Error(got, r)
			}
		}
		if r.EventTime < last {
			t.Fatalf("row %d goes back in time", n)
		}
		last = r.EventTime
		users[r.User]++
		pages[r.Page]++
		types[r.Type]++
	}
	if n != clicks.Count || first != 809754805000 || last != 809841187000 {
		t.Errorf("%d rows from %d to %d", n, first, last)
	}
	if len(users) != 2333 || len(pages) != 6300 || pages[""] != 1 || len(types) != 4 || types["html"] != 8687 {
		t.Errorf("%d users, %d pages, %d without, types %v", len(users), len(pages), pages[""], types)
	}
	for _, err := range clicks.Rows() {
		if err != nil {
			t.Error(err)
		}
		break // a reader may stop
	}
	if len(clicks.Columns()) != 8 {
		t.Error(clicks.Columns())
	}
}
