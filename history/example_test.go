package history_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/statemesh/statemesh/history"
	"github.com/statemesh/statemesh/store"
)

// counter stands for a mesh that counts records by key: produce for a producer, get for client.Client.Get, whose Answer has
// the partition and the facts.
type counter map[string]int

func (c counter) produce(key string) (store.Partition, store.Offset, error) {
	c[key]++
	return 0, store.Offset(c[key] - 1), nil
}

func (c counter) get(key string) (string, store.Partition, store.Facts, error) {
	if c[key] == 0 {
		return "", 0, store.Facts{Role: store.RoleActive}, store.ErrNotFound
	}
	return strconv.Itoa(c[key]), 0, store.Facts{Role: store.RoleActive}, nil
}

// A program writes and reads, notes what it saw, and has it judged.
func Example() {
	var file bytes.Buffer // history.Create writes to a file, for `statemesh check`
	rec := history.New(&file, history.Options{Note: "an example"})
	rec.Store("counts", history.Counter)
	mesh := counter{}

	write := rec.Write(history.Write{Topic: "orders", Effects: []history.Effect{{Store: "counts", Key: "a", Add: 1}}})
	if p, offset, err := mesh.produce("a"); err == nil {
		write.Acked(p, offset)
	} else {
		write.Unknown("timeout") // it may be in the log all the same
	}

	for _, key := range []string{"a", "b"} {
		read := rec.Read(history.Read{Store: "counts", Key: history.Text(key)})
		value, p, facts, err := mesh.get(key)
		answer := history.AnswerOf(p, facts).By("one", 1)
		switch {
		case err == nil:
			read.Answered(answer.With(value))
		case errors.Is(err, store.ErrNotFound):
			read.Answered(answer)
		default:
			read.Failed("unreachable")
		}
	}
	if err := rec.Close(); err != nil {
		fmt.Println(err)
	}

	report, err := history.Check(history.NewReader(&file).Events(), history.CheckOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("right:", report.Right)
	fmt.Println("answered:", report.Reads.Answered, "absent:", report.Reads.Absent)
	// Output:
	// right: true
	// answered: 2 absent: 1
}
