package expr_test

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/expr"
)

// A loader of a configuration file has the nodes of its scalars. That is all that errors need to name the culprit in the file.
func Example_loader() {
	const file = `
topic: flights
filter: |
  origin == "EWR" &&
    dep_delay > 10
key: "joinKey(origin, \"\u00e9\", carier)"
`
	schema, err := expr.NewSchema(expr.Layout{Format: expr.CSV, Columns: []expr.Column{
		{Name: "carrier", Type: expr.String}, {Name: "origin", Type: expr.String}, {Name: "dep_delay", Type: expr.Double, Optional: true},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var config struct{ Filter, Key yaml.Node }
	if err := yaml.Unmarshal([]byte(file), &config); err != nil {
		fmt.Println(err)
		return
	}
	source := func(n yaml.Node) expr.Source {
		return expr.Source{File: "mesh.yaml", Line: n.Line, Column: n.Column, Text: n.Value, Document: []byte(file)}
	}
	_, err = expr.Compile(source(config.Filter), schema, expr.Bool)
	fmt.Println("filter:", err)
	_, err = expr.CompileOutput(source(config.Key), schema, "string")
	for _, e := range expr.Errors(err) {
		fmt.Println("key:", e)
	}
	// Output:
	// filter: <nil>
	// key: mesh.yaml:6:35: there is no carier; did you mean carrier?
}

// A processor decodes a record once for all expressions over it.
func Example() {
	schema, err := expr.NewSchema(expr.Layout{Format: expr.CSV, Columns: []expr.Column{
		{Name: "carrier", Type: expr.String}, {Name: "origin", Type: expr.String}, {Name: "dep_delay", Type: expr.Double, Optional: true},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	filter, err := expr.Compile(expr.Source{Text: `coalesce(dep_delay, 0.0) > 10.0`}, schema, expr.Bool)
	if err != nil {
		fmt.Println(err)
		return
	}
	key, err := expr.CompileOutput(expr.Source{Text: `joinKey(origin, carrier)`}, schema, "string")
	if err != nil {
		fmt.Println(err)
		return
	}
	hours, err := expr.Compile(expr.Source{Text: `dep_delay / 60.0`}, schema, expr.Any)
	if err != nil {
		fmt.Println(err)
		return
	}
	columns, err := expr.NewObject([]expr.Field{{Name: "hours", Program: hours}})
	if err != nil {
		fmt.Println(err)
		return
	}

	// Per task.
	row, err := schema.NewRow(filter, key.Program, hours)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, value := range []string{"UA,EWR,90", "AA,JFK,", "DL,LGA,12"} {
		if err := row.Set(&processor.Record{Value: []byte(value)}, processor.RecordMetadata{}); err != nil {
			fmt.Println(err)
			return
		}
		if ok, err := filter.Bool(row); err != nil || !ok {
			fmt.Println(value, "is left out", err)
			continue
		}
		k, err := key.Append(nil, row)
		if err != nil {
			fmt.Println(err)
			return
		}
		v, err := columns.Append(nil, row)
		fmt.Println(string(k), string(v), err)
	}
	// Output:
	// EWR/UA {"hours":1.5} <nil>
	// AA,JFK, is left out <nil>
	// LGA/DL {"hours":0.2} <nil>
}
