package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/statemesh/statemesh/examples/clicks"
)

// answers is what the tables must hold, from one plain pass over the requests.
type answers struct {
	pages    map[string]int64           // clicks_by_page
	users    map[string]map[string]bool // users of each page
	top      []ranked                   // top_pages
	topHTML  []ranked                   // top_html
	hours    map[windowed]int64         // clicks_by_hour
	sessions map[windowed]session       // sessions
	sections map[string]int64           // clicks_by_section
	funnel   map[string]int64           // funnel
	requests map[request]int64          // clicks, as they came
}

// request is what is compared of one.
type request struct {
	at               int64
	user, page, kind string
}

// ranked is a page and how often it was asked for.
type ranked struct {
	page   string
	clicks int64
}

// windowed is a key and the beginning of its window, in Unix milliseconds.
type windowed struct {
	key   string
	start int64
}

// session is one visit of a user.
type session struct {
	end    int64
	clicks int64
}

const (
	hour = int64(time.Hour / time.Millisecond)
	gap  = int64(30 * time.Minute / time.Millisecond)
	best = 10
)

// compute goes through all requests, in the order of their times.
func compute() (*answers, error) {
	a := &answers{
		pages: make(map[string]int64), users: make(map[string]map[string]bool), hours: make(map[windowed]int64),
		sessions: make(map[windowed]session), sections: make(map[string]int64), funnel: make(map[string]int64),
		requests: make(map[request]int64),
	}
	html := make(map[string]int64)
	visits := make(map[string]windowed) // the open session of each user
	steps := make(map[string]*visitor)
	for r, err := range clicks.Rows() {
		if err != nil {
			return nil, err
		}
		a.hours[windowed{r.Type, r.EventTime / hour * hour}]++
		a.requests[request{r.EventTime, r.User, r.Page, r.Type}]++
		a.visit(visits, r)
		step(steps, r)
		if r.Page == "" {
			continue // a key that no group can have
		}
		a.pages[r.Page]++
		if a.users[r.Page] == nil {
			a.users[r.Page] = make(map[string]bool)
		}
		a.users[r.Page][r.User] = true
		a.sections[section(r.Page)]++
		if r.Type == "html" {
			html[r.Page]++
		}
	}
	a.top, a.topHTML = rank(a.pages), rank(html)
	for _, v := range steps {
		if s := v.step(); s != "" {
			a.funnel[s]++
		}
	}
	return a, nil
}

// visit adds a request to its user's session, or begins one.
func (a *answers) visit(open map[string]windowed, r clicks.Row) {
	at, ok := open[r.User]
	if s := a.sessions[at]; ok && r.EventTime-s.end <= gap {
		a.sessions[at] = session{end: r.EventTime, clicks: s.clicks + 1}
		return
	}
	at = windowed{r.User, r.EventTime}
	open[r.User] = at
	a.sessions[at] = session{end: r.EventTime, clicks: 1}
}

// visitor is what the funnel is made of: when a user first came home, and last read a page and fetched a document.
type visitor struct{ home, read, document int64 }

func step(all map[string]*visitor, r clicks.Row) {
	v := all[r.User]
	if v == nil {
		v = &visitor{}
		all[r.User] = v
	}
	if r.Page == "/" && v.home == 0 {
		v.home = r.EventTime
	}
	switch {
	case r.Type == "html" && r.Page != "":
		v.read = r.EventTime
	case r.Type == "pdf":
		v.document = r.EventTime
	}
}

// step is how far a user came; "": never home.
func (v *visitor) step() string {
	switch {
	case v.home == 0:
		return ""
	case v.document > v.home:
		return "document"
	case v.read > v.home:
		return "read"
	default:
		return "home"
	}
}

// rank lists the most requested pages; of equal ones the lesser comes first.
func rank(pages map[string]int64) []ranked {
	var all []ranked
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		all = append(all, ranked{page, pages[page]})
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(b.clicks, a.clicks) })
	return all[:min(best, len(all))]
}

// section is the first part of a page's path: what the topic pages says of it.
func section(page string) string {
	first, _, deeper := strings.Cut(strings.TrimPrefix(page, "/"), "/")
	switch {
	case !strings.HasPrefix(page, "/"):
		return "other"
	case !deeper || first == "":
		return "root"
	default:
		return strings.ToLower(first)
	}
}
