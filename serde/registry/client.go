package registry

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/statemesh/statemesh/serde"
)

// Client asks a registry and remembers. Safe for concurrent use. It owns no goroutine.
type Client struct {
	cfg Config
	// ask calls the registry within the client's life and the timeout of a request.
	ask func(what string, call func(context.Context, *sr.Client) error) error

	// away is set when nobody answers: other questions would wait in vain too.
	away atomic.Pointer[failure]
	// learned counts the ids that the registry gave: any of them may have failed as unknown before.
	learned atomic.Int64
	schemas *memo[int, sr.Schema]
}

// New returns a client. It connects to nobody yet. ctx is its life: when it ends, so do questions, and what was learned still
// serves.
func New(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cl, err := sr.NewClient(cfg.options()...)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	c := &Client{cfg: cfg}
	c.schemas = newMemo[int, sr.Schema](c)
	c.ask = func(what string, call func(context.Context, *sr.Client) error) error {
		if f := c.away.Load(); f != nil && time.Now().Before(f.until) {
			return f.err
		}
		ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
		defer cancel()
		if cfg.Normalize {
			ctx = sr.WithParams(ctx, sr.Normalize)
		}
		err := call(ctx, cl)
		if err == nil || errors.Is(err, serde.ErrDecode) || errors.Is(err, serde.ErrEncode) {
			return err
		}
		err = &UnavailableError{What: what, Err: err}
		if code := status(err); code == 0 || code >= 500 || code == http.StatusTooManyRequests {
			c.away.Store(&failure{err: err, until: time.Now().Add(cfg.RetryAfter)})
		}
		return err
	}
	return c, nil
}

// schema returns the schema that bytes were written with.
func (c *Client) schema(id int) (sr.Schema, error) {
	return c.schemas.get(id, func() (s sr.Schema, err error) {
		err = c.ask(fmt.Sprintf("schema %d", id), func(ctx context.Context, cl *sr.Client) error {
			// Only Protobuf has this form, which needs no parser of the language; others ignore it.
			s, err = cl.SchemaByID(sr.WithParams(ctx, sr.Format("serialized")), id)
			if status(err) == http.StatusNotFound {
				return &UnknownSchemaError{ID: id}
			}
			return err
		})
		return s, err
	})
}

// publish finds or registers a schema under a subject.
func (c *Client) publish(ctx context.Context, cl *sr.Client, subject string, s sr.Schema) (have sr.SubjectSchema, err error) {
	if c.cfg.AutoRegister {
		have, err = cl.CreateSchema(ctx, subject, s)
	} else {
		have, err = cl.LookupSchema(ctx, subject, s)
	}
	switch {
	case err == nil:
		return have, nil
	case status(err) == http.StatusNotFound && !c.cfg.AutoRegister:
		return have, &UnknownSchemaError{Subject: subject}
	case status(err) == http.StatusConflict, status(err) == http.StatusUnprocessableEntity:
		return have, &IncompatibleError{Subject: subject, Reason: err.Error()}
	}
	return have, err
}

// status of the registry's answer; 0 when it gave none.
func status(err error) int {
	if e, ok := errors.AsType[*sr.ResponseError](err); ok {
		return e.StatusCode
	}
	return 0
}

// writer returns what gives the id of a schema to write at a place. It asks for the first value, and remembers.
func (c *Client) writer(at place, record string, find func(ctx context.Context, cl *sr.Client, subject string) (sr.SubjectSchema, error)) func() (int, error) {
	ids := newMemo[place, int](c)
	return func() (int, error) {
		return ids.get(at, func() (id int, err error) {
			subject, err := c.cfg.Subject(at.topic, at.part, record)
			if err != nil {
				return 0, &serde.EncodeError{Type: "schema " + record, Err: err}
			}
			err = c.ask("subject "+subject, func(ctx context.Context, cl *sr.Client) error {
				have, err := find(ctx, cl, subject)
				id = have.ID
				return err
			})
			if err == nil {
				c.learned.Add(1)
			}
			return id, err
		})
	}
}

// publisher is how a schema that is one text is found.
func (c *Client) publisher(s sr.Schema) func(context.Context, *sr.Client, string) (sr.SubjectSchema, error) {
	return func(ctx context.Context, cl *sr.Client, subject string) (sr.SubjectSchema, error) {
		return c.publish(ctx, cl, subject, s)
	}
}

// place is what a serde is bound to; the zero place is none.
type place struct {
	topic string
	part  serde.Part
}

// headerLen is the length of the magic byte and the id.
const headerLen = 5

var errHeader = errors.New("no header of a schema registry")

func appendHeader(dst []byte, id int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0), uint32(id))
}

func splitHeader(b []byte) (id int, rest []byte, err error) {
	if len(b) < headerLen || b[0] != 0 {
		return 0, nil, errHeader
	}
	return int(binary.BigEndian.Uint32(b[1:])), b[headerLen:], nil
}

// memo remembers answers for ever and failures for a while. One question is asked at a time: who has the same finds its
// answer.
type memo[K comparable, V any] struct {
	known atomic.Pointer[map[K]V] // never changes: the next one replaces it
	c     *Client

	mu     sync.Mutex
	failed *lru.Cache[K, failure]
}

// failure holds for a while, and until the registry gives an id.
type failure struct {
	err     error
	until   time.Time
	learned int64
}

// failures bounds what is remembered of ids that nobody knows: bytes can claim any.
const failures = 1024

func newMemo[K comparable, V any](c *Client) *memo[K, V] {
	failed, err := lru.New[K, failure](failures)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	m := &memo[K, V]{c: c, failed: failed}
	m.known.Store(&map[K]V{})
	return m
}

func (m *memo[K, V]) get(k K, load func() (V, error)) (V, error) {
	if v, ok := (*m.known.Load())[k]; ok {
		return v, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := *m.known.Load()
	if v, ok := known[k]; ok {
		return v, nil
	}
	var zero V
	learned := m.c.learned.Load()
	if f, ok := m.failed.Get(k); ok && f.learned == learned && time.Now().Before(f.until) {
		return zero, f.err
	}
	v, err := load()
	if err != nil {
		m.failed.Add(k, failure{err, time.Now().Add(m.c.cfg.RetryAfter), learned})
		return zero, err
	}
	next := maps.Clone(known)
	next[k] = v
	m.known.Store(&next)
	m.failed.Remove(k)
	return v, nil
}
