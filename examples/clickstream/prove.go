package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/store"
)

// What the tables answer with: JSON objects of their columns.
type (
	pageRow    struct{ Clicks, Users, Bytes int64 }
	countRow   struct{ Clicks int64 }
	sessionRow struct {
		Clicks        int64
		Landing, Exit string
	}
	topRow struct {
		Pages []struct {
			Value string
			By    int64
		}
	}
	usersRow struct{ Users int64 }
)

// patience is how long the instances may take for all requests.
const patience = 5 * time.Minute

// prove asks every instance for everything until all is right, or it has taken too long.
func prove(ctx context.Context, c *client.Client, endpoints []string, want *answers, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begin := time.Now()
	for _, at := range endpoints {
		a := asker{c: c, opts: []client.Option{client.Via(at), client.NoCache()}, want: want}
		for {
			n, err := a.all(ctx)
			if err == nil {
				_, _ = fmt.Fprintf(out, "%s: %d answers right after %s\n", at, n, time.Since(begin).Round(100*time.Millisecond))
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("instance %s: %w", at, err)
			case <-time.After(250 * time.Millisecond):
			}
		}
	}
	return nil
}

// asker compares what one instance answers with what is right.
type asker struct {
	c    *client.Client
	opts []client.Option
	want *answers
	n    int
}

func (a *asker) all(ctx context.Context) (int, error) {
	a.n = 0
	for _, ask := range []func(context.Context) error{a.pages, a.tops, a.hours, a.sessions, a.sections, a.funnel} {
		if err := ask(ctx); err != nil {
			return a.n, err
		}
	}
	return a.n, nil
}

func (a *asker) pages(ctx context.Context) error {
	got := 0
	for key, row := range scan[pageRow](a.c.Scan(ctx, "clicks_by_page", client.ScanQuery{}, a.opts...)) {
		if row.err != nil {
			return row.err
		}
		got++
		if row.value.Clicks != a.want.pages[key] {
			return fmt.Errorf("clicks_by_page %q: %d, want %d", key, row.value.Clicks, a.want.pages[key])
		}
		if users := float64(len(a.want.users[key])); math.Abs(float64(row.value.Users)-users) > 0.04*users {
			return fmt.Errorf("clicks_by_page %q: about %d users, there were %v", key, row.value.Users, users)
		}
	}
	return a.rows("clicks_by_page", got, len(a.want.pages))
}

// rows says whether a table had as many rows as it should.
func (a *asker) rows(table string, got, want int) error {
	if got != want {
		return fmt.Errorf("%s: %d rows, want %d", table, got, want)
	}
	a.n += got
	return nil
}

func (a *asker) tops(ctx context.Context) error {
	for table, want := range map[store.Name][]ranked{"top_pages": a.want.top, "top_html": a.want.topHTML} {
		row, err := get[topRow](ctx, a, table, "all")
		if err != nil {
			return err
		}
		if len(row.Pages) != len(want) {
			return fmt.Errorf("%s: %d pages, want %d", table, len(row.Pages), len(want))
		}
		for i, p := range row.Pages {
			if p.Value != want[i].page || p.By != want[i].clicks {
				return fmt.Errorf("%s: %d is %q with %d, want %q with %d", table, i+1, p.Value, p.By, want[i].page, want[i].clicks)
			}
		}
		a.n += len(want)
	}
	return nil
}

func (a *asker) hours(ctx context.Context) error {
	got := 0
	for row, err := range a.c.ScanWindows(ctx, "clicks_by_hour", client.WindowQuery{}, a.opts...) {
		v, err := decode[countRow](row, err)
		if err != nil {
			return err
		}
		at := windowed{string(row.Key), row.Span.Start.UnixMilli()}
		if v.Clicks != a.want.hours[at] {
			return fmt.Errorf("clicks_by_hour %v: %d, want %d", at, v.Clicks, a.want.hours[at])
		}
		got++
	}
	return a.rows("clicks_by_hour", got, len(a.want.hours))
}

func (a *asker) sessions(ctx context.Context) error {
	got := 0
	for row, err := range a.c.ScanSessions(ctx, "sessions", client.SessionQuery{}, a.opts...) {
		v, err := decode[sessionRow](row, err)
		if err != nil {
			return err
		}
		at := windowed{string(row.Key), row.Span.Start.UnixMilli()}
		if want := a.want.sessions[at]; v.Clicks != want.clicks || row.Span.End.UnixMilli() != want.end {
			return fmt.Errorf("sessions %v: %d clicks until %d, want %+v", at, v.Clicks, row.Span.End.UnixMilli(), want)
		}
		got++
	}
	return a.rows("sessions", got, len(a.want.sessions))
}

func (a *asker) sections(ctx context.Context) error {
	got := 0
	for key, row := range scan[countRow](a.c.Scan(ctx, "clicks_by_section", client.ScanQuery{}, a.opts...)) {
		if row.err != nil {
			return row.err
		}
		if row.value.Clicks != a.want.sections[key] {
			return fmt.Errorf("clicks_by_section %q: %d, want %d", key, row.value.Clicks, a.want.sections[key])
		}
		got++
	}
	return a.rows("clicks_by_section", got, len(a.want.sections))
}

func (a *asker) funnel(ctx context.Context) error {
	got := 0
	for key, row := range scan[usersRow](a.c.Scan(ctx, "funnel", client.ScanQuery{}, a.opts...)) {
		if row.err != nil {
			return row.err
		}
		if row.value.Users != a.want.funnel[key] {
			return fmt.Errorf("funnel %q: %d, want %d", key, row.value.Users, a.want.funnel[key])
		}
		got++
	}
	return a.rows("funnel", got, len(a.want.funnel))
}

func get[V any](ctx context.Context, a *asker, table store.Name, key string) (V, error) {
	r, err := a.c.Get(ctx, table, []byte(key), a.opts...)
	if err != nil {
		var none V
		return none, fmt.Errorf("%s %q: %w", table, key, err)
	}
	return decode[V](client.Row{Value: r.Value}, nil)
}

// answer is a row, or why there is none.
type answer[V any] struct {
	value V
	err   error
}

func scan[V any](rows iter.Seq2[client.Row, error]) iter.Seq2[string, answer[V]] {
	return func(yield func(string, answer[V]) bool) {
		for row, err := range rows {
			v, err := decode[V](row, err)
			if !yield(string(row.Key), answer[V]{v, err}) {
				return
			}
		}
	}
}

func decode[V any](row client.Row, err error) (v V, _ error) {
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(row.Value.Data, &v); err != nil {
		return v, fmt.Errorf("row %q: %w", row.Key, err)
	}
	return v, nil
}
