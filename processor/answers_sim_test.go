package processor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
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
	return &meddledConn{Conn: c, answers: a, asked: make(map[int32]asked)}
}

// meddledConn is a connection to a broker. Its client writes whole requests.
type meddledConn struct {
	net.Conn
	answers *answers
	left    []byte // of the answer that is being read

	mu    sync.Mutex
	asked map[int32]asked // by correlation id
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
	if len(c.left) == 0 {
		answer, err := c.answer()
		if err != nil {
			return 0, err
		}
		c.left = answer
	}
	n := copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}

// answer reads the next answer, and changes it if one of its kind is due.
func (c *meddledConn) answer() ([]byte, error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(c.Conn, head); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(head))
	whole := make([]byte, size+4)
	copy(whole, head)
	if _, err := io.ReadFull(c.Conn, whole[8:]); err != nil {
		return nil, err
	}
	id := int32(binary.BigEndian.Uint32(head[4:]))
	c.mu.Lock()
	req := c.asked[id]
	delete(c.asked, id)
	c.mu.Unlock()
	how, ok := c.answers.next(kmsg.Key(req.key))
	if !ok {
		return whole, nil
	}
	how.heard()
	if how.lost {
		return nil, errors.Join(errors.New("the answer is lost"), c.Close())
	}
	time.Sleep(how.late)
	if how.err == nil && how.throttle == 0 {
		return whole, nil
	}
	return amend(whole, req, how)
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
