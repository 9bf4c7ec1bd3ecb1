package views

import (
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/store"
)

// Topology builds the topology that fills the views, or returns what [Validate] found.
//
// Each topic has one source and one node that decodes its records once for all views. A view by fields of the value goes
// from there through a repartition topic of its own, which carries the view's key and only what the view needs: the
// value for table and latest, 8 bytes for a number, nothing for count.
func Topology(views []View) (*processor.Topology, error) {
	if err := Validate(views); err != nil {
		return nil, err
	}
	t := processor.NewTopology()
	var topics []string
	byTopic := make(map[string][]View)
	for _, v := range views {
		if byTopic[v.Topic] == nil {
			topics = append(topics, v.Topic)
		}
		byTopic[v.Topic] = append(byTopic[v.Topic], v)
	}
	for _, topic := range topics {
		addTopic(t, topic, byTopic[topic])
	}
	return t, nil
}

// addTopic adds a topic and its views. The names of nodes hold a colon, which those of views and topics cannot.
func addTopic(t *processor.Topology, topic string, views []View) {
	source, decode := "source:"+topic, "select:"+topic
	options := processor.SourceOptions{OffsetReset: views[0].OffsetReset}
	if views[0].Timestamp != "" {
		options.Timestamp = eventTime(views[0])
	}
	if v := views[0]; v.Global { // it has its topic alone
		t.AddGlobalStore(v.Spec(), source, options, topic, "keep:"+v.Name, func() processor.Processor { return newGlobalKeeper(v) })
		return
	}
	children := make([]string, len(views))
	for i, v := range views {
		if children[i] = "keep:" + v.Name; len(v.Key) > 0 {
			children[i] = processor.RepartitionSink(v.Name)
		}
	}
	t.AddSource(source, options, topic)
	t.AddProcessor(decode, func() processor.Processor { return newSelector(views, children) }, source)
	for _, v := range views {
		parent := decode
		if len(v.Key) > 0 {
			t.AddRepartition(v.Name, processor.RepartitionOptions{Partitions: v.Partitions}, decode)
			parent = v.Name
		}
		keep := "keep:" + v.Name
		t.AddProcessor(keep, func() processor.Processor { return newProcessor(v) }, parent)
		t.AddStateStore(v.Spec(), keep)
	}
}

// newProcessor makes the processor that fills the store of a view.
func newProcessor(v View) processor.Processor {
	switch {
	case v.Window != (Window{}):
		return newWindowKeeper(v)
	case v.History != 0:
		return &versionKeeper{name: store.Name(v.Name), update: newUpdate(v)}
	default:
		return newKeeper(v)
	}
}
