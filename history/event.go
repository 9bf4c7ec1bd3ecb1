package history

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/statemesh/statemesh/store"
)

// Version of the file format.
const Version = 1

// Kind says what an event tells.
type Kind string

// The kinds of events. Write is followed by one of Acked, Unknown and Refused with its id, Read by Answered or Failed, Fault
// by Mended; what has no end was under way when the history ended.
const (
	KindHeader   Kind = "history"  // the first line
	KindStore    Kind = "store"    // what the values of a store are
	KindWrite    Kind = "write"    // a record is about to be sent
	KindAcked    Kind = "acked"    // it is in the log
	KindUnknown  Kind = "unknown"  // nobody knows whether it is
	KindRefused  Kind = "refused"  // it is not, and never will be
	KindRead     Kind = "read"     // a question is about to be asked
	KindAnswered Kind = "answered" // it was answered
	KindFailed   Kind = "failed"   // it was not
	KindFault    Kind = "fault"    // something is broken on purpose
	KindMended   Kind = "mended"   // and no longer
	KindFinal    Kind = "final"    // a row when everything had come to rest
	KindLog      Kind = "log"      // a row as the input log has it, read back from its begin
	KindEnd      Kind = "end"      // the recorder was closed
)

// Model is what the values of a store are.
type Model string

// The models.
const (
	// Counter: each record adds a positive number to a row; the value is the sum, in decimal. Counts are that, and sums of
	// whole numbers.
	Counter Model = "counter"
	// Register: each record sets a row to a value that no other record of this row has; the value is that of the record
	// with the highest offset. All records of a row are in one partition.
	Register Model = "register"
)

// Event is one line of a history. Which fields are set depends on Kind; times are since the header.
type Event struct {
	Kind Kind          `json:"e"`
	At   time.Duration `json:"t"`
	// ID joins the end of a write, a read or a fault to its begin. Ids only grow.
	ID int64 `json:"id,omitempty"`

	Header *Header `json:"header,omitempty"`
	Store  *Store  `json:"store,omitempty"`
	Write  *Write  `json:"write,omitempty"`
	// Place is where an acknowledged record is.
	Place  *Place  `json:"place,omitempty"`
	Read   *Read   `json:"read,omitempty"`
	Answer *Answer `json:"answer,omitempty"`
	Fault  *Fault  `json:"fault,omitempty"`
	// Row is that of KindFinal and KindLog.
	Row *Row `json:"row,omitempty"`
	// Reason of KindFailed, KindUnknown and KindRefused: few different ones, they are counted.
	Reason string `json:"reason,omitempty"`
}

// Header is the first line.
type Header struct {
	Version int       `json:"version"`
	Started time.Time `json:"started"`
	// Seed of a schedule of faults; 0: none.
	Seed uint64 `json:"seed,omitempty"`
	// Note is for people.
	Note string `json:"note,omitempty"`
}

// Store declares a store. It comes before the first event that names it.
type Store struct {
	Name  string `json:"name"`
	Model Model  `json:"model"`
}

// Write is one record and what it does.
type Write struct {
	Writer  string   `json:"writer,omitempty"`
	Topic   string   `json:"topic"`
	Effects []Effect `json:"effects"`
}

// Effect is what a record does to one row: Add to a counter, at least 1, or Set of a register.
type Effect struct {
	Store string `json:"store"`
	Key   Text   `json:"key"`
	Add   int64  `json:"add,omitempty"`
	Set   Text   `json:"set,omitempty"`
}

// Place is a place in the input log.
type Place struct {
	Partition store.Partition `json:"p"`
	Offset    store.Offset    `json:"o"`
}

// Read is one question.
type Read struct {
	Store string `json:"store"`
	// Key of a point read; empty with Scan.
	Key Text `json:"key,omitempty"`
	// Scan asks for every row of the store.
	Scan bool `json:"scan,omitempty"`
	// Session names a reader whose reads never go backwards, since each insists on what the ones before showed. Empty: none.
	Session string `json:"session,omitempty"`
	// Latest says that the read insists on everything that recorded writes and Latest reads of this store had brought by
	// its begin: their acknowledged offsets and their tokens. Such reads are linearizable, and judged so.
	Latest bool `json:"latest,omitempty"`
	// Bound is the greatest age accepted; 0: none was stated.
	Bound time.Duration `json:"bound,omitempty"`
	// Active insists on the owner's answer.
	Active bool `json:"active,omitempty"`
	// Uncommitted reads also what is not committed.
	Uncommitted bool `json:"uncommitted,omitempty"`
	// Class that figures of availability are given by. Empty: by what the read insists on (see Impact).
	Class string `json:"class,omitempty"`
	// Via is the instance that was asked, empty when the client chose.
	Via string `json:"via,omitempty"`
	// AtLeast is what the caller insisted on, beyond what Session and Latest imply.
	AtLeast *Mark `json:"at_least,omitempty"`
}

// Mark is a token: places in the changelog, by partition, and positions in input topics.
type Mark struct {
	Cuts   map[store.Partition]Cut `json:"cuts,omitempty"`
	Inputs store.Position          `json:"inputs,omitempty"`
}

// Cut is a place in one partition of a changelog: the first offset not seen.
type Cut struct {
	// Topic is the changelog's id; places in different ones do not compare.
	Topic string       `json:"id"`
	Next  store.Offset `json:"next"`
}

// MarkOf makes a Mark of a token, nil of one that asks for nothing.
func MarkOf(t store.Token) *Mark {
	if t.Empty() {
		return nil
	}
	m := &Mark{}
	if len(t.Inputs) > 0 {
		m.Inputs = t.Inputs.Clone()
	}
	for p, c := range t.Cuts {
		if m.Cuts == nil {
			m.Cuts = make(map[store.Partition]Cut, len(t.Cuts))
		}
		m.Cuts[p] = Cut{Topic: fmt.Sprintf("%x", c.TopicID), Next: c.Next}
	}
	return m
}

// Answer is what a question brought.
type Answer struct {
	// Found and Value of a point read: decimal for a counter.
	Found bool `json:"found,omitempty"`
	Value Text `json:"value,omitempty"`
	// Rows of a scan: all of them, in any order.
	Rows []Pair `json:"rows,omitempty"`

	// Age that the answer claimed when it was handed over, for a scan of its oldest part. Negative: it claimed none.
	Age time.Duration `json:"age"`
	// Role of who answered: ACTIVE, STANDBY, CACHE; empty for a scan of several.
	Role     string `json:"role,omitempty"`
	Epoch    int64  `json:"epoch,omitempty"`
	Instance string `json:"instance,omitempty"`
	// Partition of the store that answered, nil when unknown or several.
	Partition *store.Partition `json:"p,omitempty"`
	// Position of the inputs, and the token's places in the changelog.
	Position store.Position          `json:"position,omitempty"`
	Cuts     map[store.Partition]Cut `json:"cuts,omitempty"`
}

// Pair is one row of a scan.
type Pair struct {
	Key   Text `json:"k"`
	Value Text `json:"v"`
}

// AnswerOf begins an answer of one partition with what is known about it: that the key was not found. Add the value with
// [Answer.With], and who answered.
func AnswerOf(p store.Partition, f store.Facts) Answer {
	a := Answer{Age: f.Age, Role: f.Role.String(), Partition: &p, Position: f.Position}
	if m := MarkOf(f.Token); m != nil {
		a.Cuts = m.Cuts
	}
	return a
}

// With is a with the value that was found.
func (a Answer) With(value string) Answer {
	a.Found, a.Value = true, Text(value)
	return a
}

// By is a with who answered, and under which epoch of the metadata.
func (a Answer) By(instance string, epoch int64) Answer {
	a.Instance, a.Epoch = instance, epoch
	return a
}

// Fault is something that is broken on purpose. Kind is one of few: figures are given by kind.
type Fault struct {
	Kind   string `json:"kind"`
	Target string `json:"target,omitempty"`
}

// Row is what one row is.
type Row struct {
	Store string `json:"store"`
	Key   Text   `json:"key"`
	Found bool   `json:"found,omitempty"`
	Value Text   `json:"value,omitempty"`
	// Instance that was asked; empty for the log.
	Instance string `json:"instance,omitempty"`
}

// Text is bytes that usually are text: JSON has them as a string if they are, else as {"base64": "..."}.
type Text string

type encoded struct {
	Base64 string `json:"base64"`
}

// MarshalJSON keeps every byte.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(encoded{base64.StdEncoding.EncodeToString([]byte(t))})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (t *Text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var e encoded
		if err := json.Unmarshal(b, &e); err != nil {
			return err
		}
		raw, err := base64.StdEncoding.DecodeString(e.Base64)
		if err != nil {
			return err
		}
		*t = Text(raw)
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*t = Text(s)
	return nil
}
