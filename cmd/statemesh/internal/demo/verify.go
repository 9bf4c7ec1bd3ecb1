package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/store"
)

// Verification is one pass of all keys over all instances.
type Verification struct {
	// Stage is when it was made: "half" or "all".
	Stage string `json:"stage"`
	// Cache says whether answers out of remote caches were accepted.
	Cache bool `json:"cache"`
	// Asked counts questions, Wrong those whose answer was wrong or missing.
	Asked   int     `json:"asked"`
	Wrong   int     `json:"wrong"`
	Seconds float64 `json:"seconds"`
	// Latencies by where the answer came from: "local" (the instance that was asked owns the key), "hop" (it asked the
	// owner) and "cache".
	Latencies map[string]Latency `json:"latencies"`
	// Mistakes are the first of the wrong ones.
	Mistakes []Mistake `json:"mistakes,omitempty"`
}

// Latency summarises answers of one kind.
type Latency struct {
	Answers   int     `json:"answers"`
	P50Millis float64 `json:"p50_ms"`
	P99Millis float64 `json:"p99_ms"`
}

// Mistake is one wrong or missing answer.
type Mistake struct {
	View     string `json:"view"`
	Key      string `json:"key"`
	Endpoint string `json:"asked"`
	Problem  string `json:"problem"`
}

// workers ask at the same time, per instance: enough to keep two cores busy, few enough for latencies to mean something.
const workers = 4

// mistakesKept of a verification are enough to see a pattern.
const mistakesKept = 10

type question struct {
	view     *view
	key      string
	endpoint string
}

type reply struct {
	question

	from    string // "local", "hop", "cache"; empty without an answer
	took    time.Duration
	problem string // empty: right
}

// pass says how a verification asks.
type pass struct {
	// cache is said in the report: answers out of remote caches were accepted.
	cache bool
	// times that each key is asked, one right after the other.
	times int
	opts  []client.Option
}

// passes are the two ways to ask: past the remote caches, and with them, where the second answer may come out of one.
func passes() []pass {
	return []pass{{times: 1, opts: []client.Option{client.NoCache()}}, {cache: true, times: 2}}
}

// verify asks every key of every view of every instance, and of each view one key that it does not have.
func verify(ctx context.Context, cl *client.Client, views []view, endpoints []string, how pass) Verification {
	questions, replies := make(chan question), make(chan reply)
	var asking sync.WaitGroup
	for range workers * len(endpoints) {
		asking.Go(func() {
			for q := range questions {
				for range how.times {
					replies <- ask(ctx, cl, q, how.opts)
				}
			}
		})
	}
	go func() {
		defer func() { close(questions); asking.Wait(); close(replies) }()
		for _, v := range views {
			for _, key := range append(slices.Clone(v.keys), absent) {
				for _, e := range endpoints {
					select {
					case questions <- question{&v, key, e}:
					case <-ctx.Done():
						return
					}
				}
			}
		}
	}()
	begin := time.Now()
	r := collect(replies)
	r.Cache, r.Seconds = how.cache, time.Since(begin).Seconds()
	return r
}

func collect(replies <-chan reply) Verification {
	var v Verification
	took := make(map[string][]time.Duration)
	for r := range replies {
		v.Asked++
		if r.from != "" {
			took[r.from] = append(took[r.from], r.took)
		}
		if r.problem == "" {
			continue
		}
		v.Wrong++
		if len(v.Mistakes) < mistakesKept {
			v.Mistakes = append(v.Mistakes, Mistake{View: r.view.name, Key: r.key, Endpoint: r.endpoint, Problem: r.problem})
		}
	}
	v.Latencies = make(map[string]Latency, len(took))
	for from, all := range took {
		slices.Sort(all)
		v.Latencies[from] = Latency{len(all), quantile(all, 0.50), quantile(all, 0.99)}
	}
	return v
}

// quantile of sorted durations, in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	i := int(q * float64(len(sorted)))
	return float64(sorted[min(i, len(sorted)-1)].Microseconds()) / 1000
}

// ask puts one question and judges the answer.
func ask(ctx context.Context, cl *client.Client, q question, opts []client.Option) reply {
	begin := time.Now()
	res, err := cl.Get(ctx, store.Name(q.view.name), []byte(q.key), append(slices.Clip(opts), client.Via(q.endpoint))...)
	r := reply{question: q, took: time.Since(begin)}
	missing := errors.Is(err, store.ErrNotFound)
	if err == nil || missing {
		switch {
		case res.Answer.Facts.Role == store.RoleCache:
			r.from = "cache"
		case res.Answer.Endpoint == q.endpoint:
			r.from = "local"
		default:
			r.from = "hop"
		}
	}
	switch {
	case q.key == absent && missing:
	case q.key == absent && err == nil:
		r.problem = fmt.Sprintf("got %q for a key that nobody wrote", res.Value.Data)
	case err != nil:
		r.problem = err.Error()
	default:
		r.problem = q.view.check(q.key, res.Value.Data)
	}
	return r
}

// holds reports whether a scan of every view shows exactly what it must hold, and if not, how far it is.
func holds(ctx context.Context, cl *client.Client, views []view) (bool, error) {
	// The small views first: while they lag there is no need to read the large one.
	ordered := slices.SortedFunc(slices.Values(views), func(a, b view) int { return cmp.Compare(len(a.keys), len(b.keys)) })
	for _, v := range ordered {
		rows := 0
		for row, err := range cl.Scan(ctx, store.Name(v.name), client.ScanQuery{}, client.NoCache()) {
			if err != nil {
				return false, err
			}
			if _, known := slices.BinarySearch(v.keys, string(row.Key)); !known || v.check(string(row.Key), row.Value.Data) != "" {
				return false, nil
			}
			rows++
		}
		if rows != len(v.keys) {
			return false, nil
		}
	}
	return true, nil
}
