// Package joined takes errors apart that errors.Join has joined.
package joined

// Errors returns what err was joined of, at any depth, in order; err itself where it was not; none of nil.
func Errors(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, Errors(e)...)
	}
	return all
}
