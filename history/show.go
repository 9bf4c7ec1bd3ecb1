package history

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/statemesh/statemesh/store"
)

// quote is a key or a value in words, cut when it is long.
func quote(t Text) string {
	const most = 60
	if len(t) > most {
		return strconv.Quote(string(t[:most])) + "..."
	}
	return strconv.Quote(string(t))
}

// seconds is a time of a history.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 6, 64) + "s" }

// show is a rank in words.
func (r *row) show(rank int64) string {
	switch {
	case rank == 0:
		return "nothing"
	case r.model == Register:
		return fmt.Sprintf("what was written at offset %d", rank-1)
	default:
		return strconv.FormatInt(rank, 10)
	}
}

func showPosition(pos store.Position) string {
	var parts []string
	for _, topic := range slices.Sorted(maps.Keys(pos)) {
		for _, p := range slices.Sorted(maps.Keys(pos[topic])) {
			parts = append(parts, fmt.Sprintf("%s-%d@%d", topic, p, pos[topic][p]))
		}
	}
	return strings.Join(parts, ", ")
}
