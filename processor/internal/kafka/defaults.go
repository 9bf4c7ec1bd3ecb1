package kafka

// WithDefaults returns c with every zero field replaced by what it means, for showing it.
func (c Config) WithDefaults() Config { return c.withDefaults() }
