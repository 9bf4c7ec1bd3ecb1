package configfile

import "testing"

// A switch that is on by default is a field that switches it off.
func TestNegated(t *testing.T) {
	t.Parallel()
	for text, off := range map[string]bool{"true": false, "false": true, "TRUE": false, "no": false} {
		d := newDraft()
		s := negated("failover.eviction", func(d *draft) *bool { return &d.cfg.Processor.NoEviction }, "")
		err := s.set(d, text)
		if (err != nil) != (text == "no") || d.cfg.Processor.NoEviction != off {
			t.Errorf("%s: %v, off %t", text, err, d.cfg.Processor.NoEviction)
		}
		if got, want := s.get(d), map[bool]string{false: "true", true: "false"}[off]; got != want {
			t.Errorf("%s is shown as %s", text, got)
		}
	}
}
