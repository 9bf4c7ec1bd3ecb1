package accumulate

// Function is one column of an aggregate.
type Function struct {
	// Name of the column in results.
	Name string
	// Kind is one of the constants of package declared: "count", "sum", "min", "max", "avg", "first", "latest", "top_k", "distinct", "quantile".
	Kind string
	// Of says that count, too, has a value.
	Of bool
	// Type of the value: "int", "double", "string", "bool", "bytes", "timestamp", "duration", "json".
	Type string
	// K of top_k, Q of quantile.
	K int
	Q float64
}

// Input is what one function is given of one record: what is not used by it is nil.
type Input struct {
	Value, By any
}
