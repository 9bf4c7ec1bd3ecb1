package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// tables is the database that results are written to; the zero value is none.
type tables struct{ pool *pgxpool.Pool }

// openTables connects and makes the schema anew: topics of another run are other topics, and their rows would be in the way.
func openTables(ctx context.Context, url string) (*tables, error) {
	if url == "" {
		return &tables{}, nil
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL: %w", err)
	}
	if _, err := pool.Exec(ctx, "drop schema if exists clickstream cascade; create schema clickstream"); err != nil {
		pool.Close()
		return nil, fmt.Errorf("PostgreSQL: %w", err)
	}
	return &tables{pool: pool}, nil
}

func (t *tables) close() {
	if t.pool != nil {
		t.pool.Close()
	}
}

// prove compares all tables with what is right until all of them are, or it has taken too long.
func (t *tables) prove(ctx context.Context, want *answers, out io.Writer) error {
	if t.pool == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begin := time.Now()
	for {
		n, err := t.all(ctx, want)
		if err == nil {
			_, _ = fmt.Fprintf(out, "PostgreSQL: %d rows right after %s\n", n, time.Since(begin).Round(100*time.Millisecond))
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL: %w", err)
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// all compares each table: its rows as text, by what tells them apart.
func (t *tables) all(ctx context.Context, want *answers) (rows int, err error) {
	for _, table := range []struct {
		name, query string
		want        map[string]string
	}{
		{"pages", "select page, clicks::text from clickstream.pages", text(want.pages)},
		{"sections", "select section, clicks::text from clickstream.sections", text(want.sections)},
		{"funnel", "select step, users::text from clickstream.funnel", text(want.funnel)},
		{
			"top_pages", `select n::text, (page->>'value') || ' ' || (page->>'by') from clickstream.top_pages,
				jsonb_array_elements(pages) with ordinality as of(page, n) where name = 'all'`, rankedText(want.top),
		},
		{
			"hours", `select type || ' ' || (extract(epoch from since) * 1000)::bigint, clicks || ' ' || extract(epoch from until - since)::bigint
				from clickstream.hours`, hoursText(want),
		},
		{
			"sessions", `select visitor || ' ' || (extract(epoch from began) * 1000)::bigint, (extract(epoch from ended) * 1000)::bigint || ' ' || clicks
				from clickstream.sessions`, sessionsText(want),
		},
		{
			"requests", `select concat_ws(' ', (extract(epoch from at) * 1000)::bigint, visitor, coalesce(page, ''), type), count(*)::text
				from clickstream.requests group by 1`, requestsText(want),
		},
	} {
		have, err := t.pairs(ctx, table.query)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", table.name, err)
		}
		if err := differ(have, table.want); err != nil {
			return rows, fmt.Errorf("%s: %w", table.name, err)
		}
		rows += len(have)
	}
	return rows, nil
}

func (t *tables) pairs(ctx context.Context, query string) (map[string]string, error) {
	rows, err := t.pool.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	pairs := make(map[string]string)
	var key, value string
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error {
		if _, twice := pairs[key]; twice {
			return fmt.Errorf("%q is there twice", key)
		}
		pairs[key] = value
		return nil
	})
	return pairs, err
}

// differ says the first thing that is not as it should be.
func differ(have, want map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if value, ok := have[key]; !ok || value != want[key] {
			return fmt.Errorf("%q is %q, want %q; %d rows, want %d", key, value, want[key], len(have), len(want))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[key]; !ok {
			return fmt.Errorf("%q is %q, and should not be there", key, have[key])
		}
	}
	return nil
}

func text(counts map[string]int64) map[string]string {
	out := make(map[string]string, len(counts))
	for key, n := range counts {
		out[key] = strconv.FormatInt(n, 10)
	}
	return out
}

func rankedText(pages []ranked) map[string]string {
	out := make(map[string]string, len(pages))
	for i, p := range pages {
		out[strconv.Itoa(i+1)] = fmt.Sprintf("%s %d", p.page, p.clicks)
	}
	return out
}

func hoursText(a *answers) map[string]string {
	out := make(map[string]string, len(a.hours))
	for at, clicks := range a.hours {
		out[fmt.Sprintf("%s %d", at.key, at.start)] = fmt.Sprintf("%d %d", clicks, hour/1000)
	}
	return out
}

func sessionsText(a *answers) map[string]string {
	out := make(map[string]string, len(a.sessions))
	for at, s := range a.sessions {
		out[fmt.Sprintf("%s %d", at.key, at.start)] = fmt.Sprintf("%d %d", s.end, s.clicks)
	}
	return out
}

func requestsText(a *answers) map[string]string {
	out := make(map[string]string, len(a.requests))
	for r, n := range a.requests {
		out[fmt.Sprintf("%d %s %s %s", r.at, r.user, r.page, r.kind)] = strconv.FormatInt(n, 10)
	}
	return out
}
