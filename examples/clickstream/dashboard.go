package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/statemesh/statemesh/client"
)

// dashboard shows what a page about the site would ask for; README.md has the same questions for the command line.
func dashboard(ctx context.Context, c *client.Client, out io.Writer) error {
	a := &asker{c: c}
	top, err := get[topRow](ctx, a, "top_pages", "all")
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, "\nmost requested pages:")
	for i, p := range top.Pages {
		page, err := get[pageRow](ctx, a, "clicks_by_page", p.Value)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "%3d  %6d requests  %5d users  %s\n", i+1, p.By, page.Users, p.Value)
	}

	_, _ = fmt.Fprintln(out, "\nhtml pages in the evening (UTC):")
	evening := time.Date(1995, 8, 30, 18, 0, 0, 0, time.UTC)
	for row, err := range c.ScanWindows(ctx, "clicks_by_hour", client.WindowQuery{Key: []byte("html"), From: evening, To: evening.Add(5 * time.Hour)}) {
		v, err := decode[countRow](row, err)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "  %s  %5d\n", row.Span.Start.UTC().Format("15:04"), v.Clicks)
	}

	_, _ = fmt.Fprintln(out, "\nfunnel:")
	var total int64
	users := make(map[string]int64)
	for key, row := range scan[usersRow](c.Scan(ctx, "funnel", client.ScanQuery{})) {
		if row.err != nil {
			return row.err
		}
		users[key] = row.value.Users
		total += row.value.Users
	}
	_, _ = fmt.Fprintf(out, "  came home        %5d\n  read a page      %5d\n  took a document  %5d\n",
		total, users["read"]+users["document"], users["document"])

	type sectionRow struct {
		name   string
		clicks int64
	}
	var sections []sectionRow
	for key, row := range scan[countRow](c.Scan(ctx, "clicks_by_section", client.ScanQuery{})) {
		if row.err != nil {
			return row.err
		}
		sections = append(sections, sectionRow{key, row.value.Clicks})
	}
	slices.SortFunc(sections, func(a, b sectionRow) int { return cmp.Or(cmp.Compare(b.clicks, a.clicks), cmp.Compare(a.name, b.name)) })
	_, _ = fmt.Fprintln(out, "\nlargest sections:")
	for _, s := range sections[:min(5, len(sections))] {
		_, _ = fmt.Fprintf(out, "  %6d  %s\n", s.clicks, s.name)
	}
	return nil
}
