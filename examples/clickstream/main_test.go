package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/internal/postgrestest"
)

// TestRun runs the case study with its own broker: it compares every table itself.
func TestRun(t *testing.T) {
	t.Parallel()
	proveRun(t, options{instances: 2})
}

// TestRunWithPostgres compares what is written to a database as well.
func TestRunWithPostgres(t *testing.T) {
	t.Parallel()
	s := postgrestest.Run(t)
	out := proveRun(t, options{instances: 2, postgres: s.URL()})
	if !strings.Contains(out, "rows right") {
		t.Errorf("the database was not looked at:\n%s", out)
	}
	askAsDocumented(t, s.URL())
}

// askAsDocumented asks what README.md says: each question has an answer.
func askAsDocumented(t *testing.T, url string) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```sql\n")
	questions, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("README.md has no SQL")
	}
	db, err := pgxpool.New(t.Context(), url+"&search_path=clickstream")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	n := 0
	for question := range strings.SplitSeq(questions, ";\n") {
		if strings.TrimSpace(question) == "" {
			continue
		}
		n++
		rows, err := db.Query(t.Context(), question)
		if err != nil {
			t.Errorf("%s: %v", question, err)
			continue
		}
		answers := 0
		for rows.Next() {
			if values, err := rows.Values(); err != nil || !slices.ContainsFunc(values, func(v any) bool { return v != nil }) {
				t.Errorf("%s: %v, %v", question, values, err)
			}
			answers++
		}
		if err := rows.Err(); err != nil || answers == 0 {
			t.Errorf("%s: %d rows, %v", question, answers, err)
		}
	}
	if n < 8 {
		t.Errorf("%d questions", n)
	}
}

// TestRunWhileFenced takes the transactions of both instances away while they write: what was aborted is counted nowhere, and
// nothing is left out.
func TestRunWhileFenced(t *testing.T) {
	t.Parallel()
	cluster, err := fakekafka.New(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	brokers := cluster.ListenAddrs()
	ctx, cancel := context.WithCancel(t.Context())
	fenced := make(chan int)
	go func() {
		n, err := fence(ctx, brokers, 5)
		if err != nil {
			t.Error(err)
		}
		fenced <- n
	}()
	proveRun(t, options{instances: 2, brokers: strings.Join(brokers, ",")})
	cancel()
	if n := <-fenced; n == 0 {
		t.Error("no transaction was open when it was looked for")
	}
}

func proveRun(t *testing.T, o options) string {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "answers right"); n != o.instances {
		t.Errorf("%d instances have answered:\n%s", n, out.String())
	}
	return out.String()
}

// fence initialises the ids of open transactions anew, which aborts them and bars their producers, until it has done so most times
// or ctx ends. It returns how many it has aborted.
func fence(ctx context.Context, brokers []string, most int) (n int, err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	again := time.NewTicker(150 * time.Millisecond) // some commits between two
	defer again.Stop()
	for n < most {
		open := kmsg.NewPtrListTransactionsRequest()
		open.StateFilters = []string{"Ongoing"}
		if resp, err := open.RequestWith(ctx, cl); err == nil && len(resp.TransactionStates) > 0 {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID = &resp.TransactionStates[n%len(resp.TransactionStates)].TransactionalID
			req.TransactionTimeoutMillis = 10_000
			if resp, err := req.RequestWith(ctx, cl); err == nil && resp.ErrorCode == 0 {
				n++
			}
		}
		select {
		case <-ctx.Done():
			return n, nil
		case <-again.C:
		}
	}
	return n, nil
}
