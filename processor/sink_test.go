package processor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/statemesh/statemesh/processor/internal/topics"
)

// TestDirectory: what was told about a topic is believed for its time, and what a broker's absence leaves open is nobody's fault.
func TestDirectory(t *testing.T) {
	t.Parallel()
	now, asked := time.UnixMilli(0), 0
	answer, failure := topics.Info{Partitions: 3, MaxMessageBytes: 1000}, error(nil)
	d := &directory{
		now: func() time.Time { return now }, batch: 1000, known: make(map[string]sinkTopic),
		manual:   func(topic string) bool { return topic == "chosen" },
		internal: func(topic string) bool { return topic == "own" },
		describe: func(context.Context, string) (topics.Info, error) { asked++; return answer, failure },
	}
	find := func(topic, reason string, chosen int32, times int) {
		t.Helper()
		asked = 0
		k, err := d.find(t.Context(), topic)
		switch {
		case reason == "" && err != nil, reason != "" && (!is[*SinkTopicError](err) || !strings.Contains(err.Error(), reason)):
			t.Errorf("%s: %v, want %q", topic, err, reason)
		case k.chosen != chosen || asked != times:
			t.Errorf("%s: %d partitions, asked %d times, want %d, %d", topic, k.chosen, asked, chosen, times)
		}
	}
	find("own", "internal topic", 0, 0)
	find("keyed", "", 0, 1)
	find("chosen", "", 3, 1)
	find("chosen", "", 3, 0)
	now = now.Add(topicKnownFor)
	answer.MaxMessageBytes = 999
	find("chosen", "999 is below the batches of the producer, 1000", 0, 1)
	now = now.Add(topicKnownFor)
	failure = &topics.MissingError{Topics: []string{"chosen"}}
	find("chosen", "does not exist", 0, 1)
	find("chosen", "does not exist", 0, 0)
	now = now.Add(topicMissingFor)
	failure, answer.MaxMessageBytes = nil, 0 // which a broker need not tell
	find("chosen", "", 3, 1)
	failure = kerr.TopicAuthorizationFailed
	find("refused", "kafka refuses DESCRIBE", 0, 1)
	failure = errors.New("nobody there")
	for range 2 { // asked again
		if _, err := d.find(t.Context(), "away"); !is[*outputError](err) || !errors.Is(err, failure) {
			t.Errorf("away: %v, want the error of the producer", err)
		}
	}
}

// TestDynamicSinkDescribed: as upstream shows a sink without a topic of its own.
func TestDynamicSinkDescribed(t *testing.T) {
	t.Parallel()
	b := mustBuild(t, NewTopology().AddSource("source", SourceOptions{}, "in").
		AddDynamicSink("sink", SinkOptions{}, nil, "source").
		AddRepartition("again", RepartitionOptions{}, "source"))
	want := "    Sink: sink (extractor class: TopicExtractor)\n      <-- source\n"
	if got := b.Describe(); !strings.Contains(got, want) {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := b.SinkTopics(); len(got) != 0 {
		t.Errorf("sink topics %q", got)
	}
	mustPlan(t, b, map[string]int32{"in": 2})
}
