// Package flights holds every flight that left New York (EWR, JFK and LGA) in 2013, 336,776 of them, and the right
// answers about them: data to try statemesh with, and to test it by. README.md says where they come from.
package flights
