package hostproc

import "testing"

func TestBeside(t *testing.T) {
	t.Parallel()
	self := ID{BootID: "b", PIDNamespace: "1", PID: 7, StartTime: 9}
	for name, tc := range map[string]struct {
		id   ID
		want bool
	}{
		"another process":   {ID{"b", "1", 8, 10}, true},
		"another machine":   {ID{"c", "1", 8, 10}, false},
		"another container": {ID{"b", "2", 8, 10}, false},
		"nothing known":     {ID{}, false},
		"no boot":           {ID{"", "1", 8, 10}, false},
		"no namespace":      {ID{"b", "", 8, 10}, false},
		"no pid":            {ID{"b", "1", 0, 10}, false},
		"no start":          {ID{"b", "1", 8, 0}, false},
		"a group of them":   {ID{"b", "1", -8, 10}, false},
	} {
		if got := self.Beside(tc.id); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
		if got := tc.id.Beside(self); got != tc.want {
			t.Errorf("%s, the other way: %t", name, got)
		}
		if !tc.want && Look(self, tc.id) != Unknown {
			t.Errorf("%s: %s", name, Look(self, tc.id))
		}
	}
	if (ID{}).Beside(ID{}) {
		t.Error("two processes of which nothing is known are beside each other")
	}
}
