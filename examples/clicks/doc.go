// Package clicks holds every request to a web server during a day of 1995, 47,748 of them by 2,333 users: a real click stream, to
// try windows and sessions with and to test them by. README.md says where it comes from.
package clicks
