package store

import "context"

type userKey struct{}

// WithUser names who reads with the context: what a read that was left open is reported under. A constant, such as the
// method of an API, and never what a caller sent.
func WithUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

// UserOf returns the name that [WithUser] has set, or "".
func UserOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}
