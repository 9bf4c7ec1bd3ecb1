package wire

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// Domain is the domain of the google.rpc.ErrorInfo in every status.
const Domain = "statemesh"

// The errors that only the wire has.
var (
	// ErrInternal reports a defect of the other end; its log has the cause.
	ErrInternal = errors.New("wire: internal error")
	// ErrUnreachable reports a call that the transport could not deliver, or whose answer it lost: nobody knows
	// whether it was served. Queries may be asked again.
	ErrUnreachable = errors.New("wire: instance unreachable")
	// ErrMalformed reports an answer that no server of this API sends.
	ErrMalformed = errors.New("wire: malformed answer")
)

// row is one kind of error in all its forms.
type row struct {
	reason statemeshv1.Reason
	code   codes.Code
	// sentinel is what errors.Is matches on either side.
	sentinel error
	// encode puts the facts of the typed error in err's chain, if there is one, into d. nil: the error has no facts.
	encode func(err error, d *statemeshv1.ErrorDetail)
	// decode makes the typed error of d; nil when d has no facts. Without it, or them, the sentinel is the error.
	decode func(d *statemeshv1.ErrorDetail) error
	// terse keeps the text of the chain at home: what wraps these errors may quote data or paths.
	terse bool
}

// table maps errors to statuses and back. An error that matches several rows gets the first of them.
var table = []row{
	{reason: statemeshv1.Reason_REASON_KEY_NOT_FOUND, code: codes.NotFound, sentinel: store.ErrNotFound, encode: encodeAbsent, decode: decodeAbsent},
	{reason: statemeshv1.Reason_REASON_UNKNOWN_STORE, code: codes.NotFound, sentinel: store.ErrUnknownStore, encode: encodeUnknownStore, decode: decodeUnknownStore},
	{reason: statemeshv1.Reason_REASON_WRONG_STORE_KIND, code: codes.FailedPrecondition, sentinel: store.ErrWrongKind, encode: encodeWrongKind, decode: decodeWrongKind},
	{reason: statemeshv1.Reason_REASON_INVALID_KEY, code: codes.InvalidArgument, sentinel: store.ErrInvalidKey, encode: encodeInvalidKey, decode: decodeInvalidKey},
	{reason: statemeshv1.Reason_REASON_INVALID_REQUEST, code: codes.InvalidArgument, sentinel: store.ErrInvalidRequest, encode: encodeInvalidRequest, decode: decodeInvalidRequest},
	{reason: statemeshv1.Reason_REASON_TOO_LARGE, code: codes.InvalidArgument, sentinel: store.ErrTooLarge, encode: encodeTooLarge, decode: decodeTooLarge},
	{reason: statemeshv1.Reason_REASON_WRONG_PARTITION, code: codes.FailedPrecondition, sentinel: store.ErrWrongPartition, encode: encodeWrongPartition, decode: decodeWrongPartition},
	{reason: statemeshv1.Reason_REASON_PERMISSION_DENIED, code: codes.PermissionDenied, sentinel: store.ErrPermissionDenied, encode: encodePermissionDenied, decode: decodePermissionDenied},
	{reason: statemeshv1.Reason_REASON_NO_REPLICA, code: codes.Unavailable, sentinel: store.ErrNoReplica, encode: encodeNoReplica, decode: decodeNoReplica},
	{reason: statemeshv1.Reason_REASON_MOVED, code: codes.Unavailable, sentinel: store.ErrMoved, encode: encodeMoved, decode: decodeMoved},
	{reason: statemeshv1.Reason_REASON_NOT_READY, code: codes.Unavailable, sentinel: store.ErrNotReady, encode: encodeNotReady, decode: decodeNotReady},
	{reason: statemeshv1.Reason_REASON_BEHIND, code: codes.Unavailable, sentinel: store.ErrBehind, encode: encodeBehind, decode: decodeBehind},
	{reason: statemeshv1.Reason_REASON_NOT_ACTIVE, code: codes.Unavailable, sentinel: store.ErrNotActive, encode: encodeNotActive, decode: decodeNotActive},
	{reason: statemeshv1.Reason_REASON_OVERLOADED, code: codes.ResourceExhausted, sentinel: store.ErrOverloaded, encode: encodeOverloaded, decode: decodeOverloaded},
	{reason: statemeshv1.Reason_REASON_SHUTTING_DOWN, code: codes.Unavailable, sentinel: store.ErrShuttingDown},
	{reason: statemeshv1.Reason_REASON_DEADLINE_EXCEEDED, code: codes.DeadlineExceeded, sentinel: context.DeadlineExceeded},
	{reason: statemeshv1.Reason_REASON_CANCELLED, code: codes.Canceled, sentinel: context.Canceled},
	{reason: statemeshv1.Reason_REASON_CORRUPT, code: codes.Unavailable, sentinel: store.ErrCorrupt, terse: true},
	{reason: statemeshv1.Reason_REASON_CLOSED, code: codes.Unavailable, sentinel: store.ErrClosed, terse: true},
	internal,
}

// internal is the last row: whatever has no other.
var internal = row{reason: statemeshv1.Reason_REASON_INTERNAL, code: codes.Internal, sentinel: ErrInternal, terse: true}

// maxText bounds the text of a status in bytes: statuses travel in headers, and proxies cap those.
const maxText = 2048

// StatusError is an error that came over the wire. It unwraps to the domain's error with its facts, and is the status
// it came as when it is sent on.
type StatusError struct {
	// Reason is unspecified when the status came without one, or with one that this version does not know.
	Reason statemeshv1.Reason
	st     *status.Status
	err    error
}

func (e *StatusError) Error() string { return e.st.Message() }

// Unwrap returns the error of the domain.
func (e *StatusError) Unwrap() error { return e.err }

// GRPCStatus returns the status as it came.
func (e *StatusError) GRPCStatus() *status.Status { return e.st }

// Reason is the reason that [ToStatus] gives err; unspecified for nil.
func Reason(err error) statemeshv1.Reason {
	if err == nil {
		return statemeshv1.Reason_REASON_UNSPECIFIED
	}
	return lookup(err).reason
}

// ReasonName is the name of a reason in an ErrorInfo.
func ReasonName(r statemeshv1.Reason) string { return strings.TrimPrefix(r.String(), "REASON_") }

// lookup finds err's row.
func lookup(err error) *row {
	for i := range table {
		if errors.Is(err, table[i].sentinel) {
			return &table[i]
		}
	}
	return &internal
}

// ToStatus makes the status of err: its code, an ErrorInfo and an ErrorDetail. An error that came over the wire with
// a reason goes on as it came. An error that no row knows becomes INTERNAL without its text, which may hold anything.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*StatusError](err); ok && e.Reason != statemeshv1.Reason_REASON_UNSPECIFIED {
		return e.st.Err()
	}
	r := lookup(err)
	text := r.sentinel.Error()
	if !r.terse {
		text = clip(err.Error())
	}
	d := &statemeshv1.ErrorDetail{Reason: r.reason}
	if r.encode != nil {
		r.encode(err, d)
	}
	st, derr := status.New(r.code, text).WithDetails(
		&errdetails.ErrorInfo{Reason: ReasonName(r.reason), Domain: Domain, Metadata: infoMetadata(d)}, d)
	if derr != nil { // only a detail that cannot be marshalled: texts are clean, so this is a defect
		return status.Error(codes.Internal, ErrInternal.Error())
	}
	return st.Err()
}

// FromStatus makes the error of the domain out of what a call returned: a *[StatusError] around it. nil stays nil; an
// error without a status stays what it is. A bare status, of the transport or of a proxy, becomes the error that is
// nearest to it: UNAVAILABLE is [ErrUnreachable], RESOURCE_EXHAUSTED a message above a limit of the transport (the
// server's own overload carries a reason).
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*StatusError](err); ok {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	e := &StatusError{st: st}
	var info *errdetails.ErrorInfo
	d := &statemeshv1.ErrorDetail{}
	for _, any := range st.Details() {
		switch v := any.(type) {
		case *errdetails.ErrorInfo:
			if v.GetDomain() == Domain {
				info = v
			}
		case *statemeshv1.ErrorDetail:
			d = v
		}
	}
	if info != nil {
		for i := range table {
			if r := &table[i]; ReasonName(r.reason) == info.GetReason() {
				e.Reason, e.err = r.reason, r.sentinel
				if r.decode != nil {
					if typed := r.decode(d); typed != nil {
						e.err = typed
					}
				}
				return e
			}
		}
	}
	e.err = bare(st)
	return e
}

// bare is the nearest error of a status that has no reason we know: of the transport, of a proxy, or of a later version.
func bare(st *status.Status) error {
	switch st.Code() {
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Canceled:
		return context.Canceled
	case codes.Unavailable:
		return ErrUnreachable
	case codes.ResourceExhausted:
		return &store.TooLargeError{What: "message", Setting: "message limit of the transport"}
	case codes.PermissionDenied, codes.Unauthenticated:
		return &store.PermissionDeniedError{Action: "call", Reason: st.Message()}
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.NotFound:
		return &store.InvalidRequestError{Field: "call", Reason: st.Message()}
	default:
		return ErrInternal
	}
}

// infoMetadata is what a person and a generic client need to act without knowing our detail message.
func infoMetadata(d *statemeshv1.ErrorDetail) map[string]string {
	md := make(map[string]string, 4)
	put := func(k, v string) {
		if v != "" {
			md[k] = v
		}
	}
	put("store", d.GetStore())
	if d.Partition != nil {
		put("partition", strconv.Itoa(int(d.GetPartition())))
	}
	switch v := d.GetDetail().(type) {
	case *statemeshv1.ErrorDetail_Moved:
		put("instance", v.Moved.GetTo().GetId())
		put("endpoint", v.Moved.GetTo().GetEndpoint())
		put("epoch", strconv.FormatInt(v.Moved.GetEpoch(), 10))
	case *statemeshv1.ErrorDetail_NotReady:
		put("cause", v.NotReady.GetCause())
		if v.NotReady.GetRetryAfter() != nil {
			put("retry_after", v.NotReady.GetRetryAfter().AsDuration().String())
		}
	case *statemeshv1.ErrorDetail_Behind:
		if v.Behind.GetRetryAfter() != nil {
			put("retry_after", v.Behind.GetRetryAfter().AsDuration().String())
		}
	case *statemeshv1.ErrorDetail_NotActive:
		put("role", v.NotActive.GetRole().String())
	case *statemeshv1.ErrorDetail_NoReplica:
		put("epoch", strconv.FormatInt(v.NoReplica.GetEpoch(), 10))
	case *statemeshv1.ErrorDetail_WrongPartition:
		put("want", strconv.Itoa(int(v.WrongPartition.GetWant())))
	case *statemeshv1.ErrorDetail_TooLarge:
		put("what", v.TooLarge.GetWhat())
		put("limit", strconv.FormatInt(v.TooLarge.GetLimit(), 10))
		put("setting", v.TooLarge.GetSetting())
	case *statemeshv1.ErrorDetail_Invalid:
		put("field", v.Invalid.GetField())
	case *statemeshv1.ErrorDetail_Overloaded:
		put("limit", v.Overloaded.GetLimit())
		put("retry_after", v.Overloaded.GetRetryAfter().AsDuration().String())
	default: // the others say it all with store and partition
	}
	return md
}

// clip makes s fit for a status: valid UTF-8, at most maxText bytes.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText-3], "") + "..."
}
