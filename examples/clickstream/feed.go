package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/examples/clicks"
	"github.com/statemesh/statemesh/internal/fakekafka"
)

// prepare starts a broker when none is given, makes the topics and fills them. done ends what it started.
func prepare(ctx context.Context, brokers []string) (_ []string, done func(), err error) {
	done = func() {}
	if len(brokers) == 0 {
		b, err := fakekafka.New(kfake.NumBrokers(1))
		if err != nil {
			return nil, nil, err
		}
		brokers, done = b.ListenAddrs(), b.Close
	}
	if err := feed(ctx, brokers); err != nil {
		done()
		return nil, nil, err
	}
	return brokers, done, nil
}

func feed(ctx context.Context, brokers []string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return err
	}
	defer cl.Close()
	forever, compacted := "-1", "compact" // the requests are of 1995
	admin := kadm.NewClient(cl)
	for topic, config := range map[string]map[string]*string{
		"clicks": {"retention.ms": &forever},
		"pages":  {"cleanup.policy": &compacted},
	} {
		if _, err := admin.CreateTopic(ctx, 3, -1, config, topic); err != nil {
			return fmt.Errorf("create %s: %w", topic, err)
		}
	}
	requests, sections := []*kgo.Record(nil), make(map[string]string)
	for r, err := range clicks.Rows() {
		if err != nil {
			return err
		}
		requests = append(requests, &kgo.Record{Topic: "clicks", Value: r.Value()})
		if r.Page != "" {
			sections[r.Page] = section(r.Page)
		}
	}
	var pages []*kgo.Record
	for _, page := range slices.Sorted(maps.Keys(sections)) {
		value, err := json.Marshal(map[string]string{"section": sections[page]})
		if err != nil {
			return err
		}
		pages = append(pages, &kgo.Record{Topic: "pages", Key: []byte(page), Value: value})
	}
	// The table first: a request meets what the table has at that moment.
	for _, records := range [][]*kgo.Record{pages, requests} {
		if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}
