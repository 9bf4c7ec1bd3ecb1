package badgerdb

// The steps that a crash may follow, in the order in which they happen.
var (
	MoveSteps = []string{string(stepData), string(stepSynced), string(stepRecord), string(stepDone)}
	UndoSteps = []string{string(stepUndoData), string(stepUndoSynced), string(stepRecord), string(stepDone)}
)

// WithHook returns opt with a function that is called after each step; what it returns the step returns.
func WithHook(opt Options, hook func(step string) error) Options {
	opt.hook = func(s step) error { return hook(string(s)) }
	return opt
}

// StepDropped follows DropPrefix.
const StepDropped = string(stepDropped)

// WithSweepRows returns opt with another bound on what is deleted row by row.
func WithSweepRows(opt Options, rows int) Options {
	opt.sweepRows = rows
	return opt
}

// Flatten compacts everything.
func Flatten(db *DB) error { return db.badger.Flatten(1) }

// Compact flushes the memtable and compacts everything.
func Compact(db *DB) error {
	if err := db.rotate(); err != nil {
		return err
	}
	return db.badger.Flatten(1)
}
