package hostproc

import "testing"

func TestParseStat(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		line string
		want stat
		ok   bool
	}{
		"plain":           {"12 (statemesh) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 9 0 4711 20", stat{'S', 9, 4711}, true},
		"a spiteful name": {"12 (a) R 1 (b) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 0 4711 20", stat{'Z', 1, 4711}, true},
		"empty":           {"", stat{}, false},
		"no name":         {"12 S 1 2 3", stat{}, false},
		"cut off":         {"12 (x) S 1 2 3", stat{}, false},
		"no number":       {"12 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 9 0 x 20", stat{}, false},
	} {
		got, err := parseStat([]byte(tc.line))
		if got != tc.want || (err == nil) != tc.ok {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A first thread that has ended while others run is a zombie too: the process is not gone.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		s    stat
		want State
	}{
		"runs":               {stat{'R', 1, 5}, Running},
		"sleeps":             {stat{'S', 9, 5}, Running},
		"stopped":            {stat{'T', 9, 5}, Running},
		"ended":              {stat{'Z', 1, 5}, Gone},
		"ended, not all yet": {stat{'Z', 3, 5}, Running},
		"dead":               {stat{'X', 1, 5}, Gone},
		"another":            {stat{'R', 1, 6}, Gone},
	} {
		if got := tc.s.judge(5); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
