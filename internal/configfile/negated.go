package configfile

import "strconv"

// negated is a boolean that is true by default, and false in the field of a configuration whose zero value means that.
func negated(name string, at func(*draft) *bool, meaning string) Setting {
	s := boolean(name, "true", at, meaning)
	set := s.set
	s.set = func(d *draft, v string) error {
		if err := set(d, v); err != nil {
			return err
		}
		*at(d) = !*at(d)
		return nil
	}
	s.get = func(d *draft) string { return strconv.FormatBool(!*at(d)) }
	return s
}
