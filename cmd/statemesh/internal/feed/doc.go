// Package feed reads rows out of CSV or JSON lines and produces them to a topic, keyed by one or more of their fields.
package feed
