package processor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// amends is what becomes of the answer to a request that was done.
type amends struct {
	err      *kerr.Error   // it is answered with this error
	throttle time.Duration // it asks the client to be silent for so long
	late     time.Duration // it takes so long
	lost     bool          // the connection breaks instead
	heard    func()        // is told of each
}

// answers is the way from the brokers to the instances of a fleet, where answers change.
type answers struct {
	mu  sync.Mutex
	due map[kmsg.Key][]amends
}

// spoil lets n answers of a kind change.
func (a *answers) spoil(kind kmsg.Key, n int, how amends) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range n {
		a.due[kind] = append(a.due[kind], how)
	}
}

func (a *answers) calm() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.due)
}

func (a *answers) next(kind kmsg.Key) (how amends, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.due[kind]) == 0 {
		return amends{}, false
	}
	how, a.due[kind] = a.due[kind][0], a.due[kind][1:]
	return how, true
}

func (a *answers) meddle(c net.Conn) net.Conn {
	return &meddledConn{Conn: c, answers: a, asked: make(map[int32]asked), moved: make(chan struct{})}
}

// meddledConn is a connection to a broker. Its client writes whole requests.
type meddledConn struct {
	net.Conn
	answers *answers
	left    []byte // of the answer that is being read
	late    []byte // an answer that comes at due; nil: none
	due     time.Time

	mu       sync.Mutex
	asked    map[int32]asked // by correlation id
	deadline time.Time       // of reads
	moved    chan struct{}   // closed when the deadline is another one
}

type asked struct{ key, version int16 }

func (c *meddledConn) Write(b []byte) (int, error) {
	if len(b) >= 12 {
		c.mu.Lock()
		c.asked[int32(binary.BigEndian.Uint32(b[8:]))] = asked{int16(binary.BigEndian.Uint16(b[4:])), int16(binary.BigEndian.Uint16(b[6:]))}
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

func (c *meddledConn) Read(b []byte) (int, error) {
	if len(c.left) == 0 && c.late == nil {
		answer, late, err := c.answer()
		if err != nil {
			return 0, err
		}
		if c.left = answer; late > 0 {
			c.left, c.late, c.due = nil, answer, time.Now().Add(late)
		}
	}
	if c.late != nil {
		if err := c.await(); err != nil {
			return 0, err
		}
		c.left, c.late = c.late, nil
	}
	n := copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}

func (c *meddledConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *meddledConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	close(c.moved)
	c.moved = make(chan struct{})
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

// Close ends a wait as well.
func (c *meddledConn) Close() error {
	_ = c.SetReadDeadline(time.Unix(1, 0))
	return c.Conn.Close()
}

// await waits for the late answer as a connection does: a deadline that passes, also one that is set meanwhile, ends the wait. The
// client calls requests off so, some of them with a mutex in its hand, and the bubble's clock stands still while somebody waits for one.
func (c *meddledConn) await() error {
	for {
		c.mu.Lock()
		deadline, moved := c.deadline, c.moved
		c.mu.Unlock()
		until := c.due
		switch now := time.Now(); {
		case !deadline.IsZero() && !deadline.After(now):
			return os.ErrDeadlineExceeded
		case !until.After(now):
			return nil
		case !deadline.IsZero() && deadline.Before(until):
			until = deadline
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-timer.C:
		case <-moved:
			timer.Stop()
		}
	}
}

// answer reads the next answer, and changes it if one of its kind is due. It may be due later.
func (c *meddledConn) answer() (_ []byte, late time.Duration, _ error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(c.Conn, head); err != nil {
		return nil, 0, err
	}
	size := int(binary.BigEndian.Uint32(head))
	whole := make([]byte, size+4)
	copy(whole, head)
	if _, err := io.ReadFull(c.Conn, whole[8:]); err != nil {
		return nil, 0, err
	}
	id := int32(binary.BigEndian.Uint32(head[4:]))
	c.mu.Lock()
	req := c.asked[id]
	delete(c.asked, id)
	c.mu.Unlock()
	how, ok := c.answers.next(kmsg.Key(req.key))
	if !ok {
		return whole, 0, nil
	}
	how.heard()
	if how.lost {
		return nil, 0, errors.Join(errors.New("the answer is lost"), c.Close())
	}
	if how.err != nil || how.throttle > 0 {
		var err error
		if whole, err = amend(whole, req, how); err != nil {
			return nil, 0, err
		}
	}
	return whole, how.late, nil
}

// amend changes an answer: the length, the id and, for flexible ones, an empty list of tags come before its body.
func amend(whole []byte, req asked, how amends) ([]byte, error) {
	resp := kmsg.ResponseForKey(req.key)
	resp.SetVersion(req.version)
	body := kbin.Reader{Src: whole[8:]}
	if resp.IsFlexible() {
		kmsg.SkipTags(&body)
	}
	if err := resp.ReadFrom(body.Src); err != nil {
		return nil, fmt.Errorf("answer of kind %s: %w", kmsg.NameForKey(req.key), err)
	}
	if how.err != nil {
		fail(reflect.ValueOf(resp).Elem(), how.err.Code)
	}
	if f := reflect.ValueOf(resp).Elem().FieldByName("ThrottleMillis"); f.IsValid() {
		f.SetInt(how.throttle.Milliseconds())
	}
	out := append([]byte(nil), whole[:8]...)
	if resp.IsFlexible() {
		out = append(out, 0)
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out, nil
}

// fail writes an error into everything in an answer that has one, unless another one is there.
func fail(v reflect.Value, code int16) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			fail(v.Index(i), code)
		}
	case reflect.Struct:
		if f := v.FieldByName("ErrorCode"); f.IsValid() && f.Kind() == reflect.Int16 && f.Int() == 0 {
			f.SetInt(int64(code))
		}
		for _, f := range v.Fields() {
			fail(f, code)
		}
	default:
	}
}
