package certs

import (
	"net"
	"strings"
)

// Loopback reports whether "host:port" is reached from this machine only, so that plain text needs nobody's consent. A
// name counts when it is localhost; no name is looked up.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
