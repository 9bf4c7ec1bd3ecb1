package wire

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// samples has every reason with facts in each field, so that a field that is forgotten on the way shows.
var samples = map[statemeshv1.Reason]struct {
	code codes.Code
	err  error // typed, or the sentinel of what has no facts
}{
	statemeshv1.Reason_REASON_KEY_NOT_FOUND: {codes.NotFound, &AbsentError{Store: "flights", Answer: Answer{
		Partition: 3, Epoch: 17, Instance: "a", Endpoint: "10.0.0.1:9", Facts: store.Facts{
			Role: store.RoleStandby, Sequence: 5, Age: 1234567 * time.Nanosecond, Position: store.Position{"in": {3: 99, 1: 7}},
		},
	}}},
	statemeshv1.Reason_REASON_UNKNOWN_STORE: {codes.NotFound, &store.UnknownStoreError{Store: "x", Known: []store.Name{"a", "b"}}},
	statemeshv1.Reason_REASON_WRONG_STORE_KIND: {codes.FailedPrecondition, &store.WrongKindError{
		Store: "x", Kind: store.KindTimestampedKeyValue, Query: "window",
	}},
	statemeshv1.Reason_REASON_INVALID_KEY:     {codes.InvalidArgument, &store.InvalidKeyError{Store: "x", Reason: "empty"}},
	statemeshv1.Reason_REASON_INVALID_REQUEST: {codes.InvalidArgument, &store.InvalidRequestError{Field: "limit", Reason: "-1"}},
	statemeshv1.Reason_REASON_TOO_LARGE: {codes.InvalidArgument, &store.TooLargeError{
		Store: "x", What: "key", Size: 70000, Limit: 65535, Setting: "server.max.key.bytes",
	}},
	statemeshv1.Reason_REASON_MOVED: {codes.Unavailable, &store.MovedError{
		Store: "x", Partition: 4, Instance: "b", Endpoint: "10.0.0.2:9", Epoch: 18,
	}},
	statemeshv1.Reason_REASON_NOT_READY: {codes.Unavailable, &store.NotReadyError{
		Store: "x", Partition: 4, Reason: "restoring", Building: true, Restored: 10, Total: 20, RetryAfter: 150 * time.Millisecond,
	}},
	statemeshv1.Reason_REASON_NO_REPLICA: {codes.Unavailable, &store.NoReplicaError{
		Store: "x", Partition: 4, Epoch: 18, Candidates: []store.Candidate{
			{Instance: "a", Endpoint: "10.0.0.1:9", Role: store.RoleActive, Reason: "connection refused"},
			{Instance: "b", Endpoint: "10.0.0.2:9", Role: store.RoleStandby, Reason: "age 3s, want 1s"},
		},
	}},
	statemeshv1.Reason_REASON_WRONG_PARTITION: {codes.FailedPrecondition, &store.WrongPartitionError{Store: "x", Have: 1, Want: 2}},
	statemeshv1.Reason_REASON_OVERLOADED: {codes.ResourceExhausted, &store.OverloadedError{
		Limit: "server.max.concurrent.requests", RetryAfter: 50 * time.Millisecond,
	}},
	statemeshv1.Reason_REASON_SHUTTING_DOWN:     {codes.Unavailable, store.ErrShuttingDown},
	statemeshv1.Reason_REASON_CLOSED:            {codes.Unavailable, store.ErrClosed},
	statemeshv1.Reason_REASON_CORRUPT:           {codes.Unavailable, store.ErrCorrupt},
	statemeshv1.Reason_REASON_DEADLINE_EXCEEDED: {codes.DeadlineExceeded, context.DeadlineExceeded},
	statemeshv1.Reason_REASON_CANCELLED:         {codes.Canceled, context.Canceled},
	statemeshv1.Reason_REASON_PERMISSION_DENIED: {codes.PermissionDenied, &store.PermissionDeniedError{
		Action: "forward", Reason: "no certificate",
	}},
	statemeshv1.Reason_REASON_BEHIND: {codes.Unavailable, &store.BehindError{
		Store: "x", Partition: 4, RetryAfter: 150 * time.Millisecond,
		Have: store.Token{Cuts: map[store.Partition]store.Cut{4: {TopicID: [16]byte{1}, Next: 5}}},
		Want: store.Token{Cuts: map[store.Partition]store.Cut{4: {TopicID: [16]byte{1}, Next: 6}}, Inputs: store.Position{"in": {4: 0}}},
	}},
	statemeshv1.Reason_REASON_NOT_ACTIVE: {codes.Unavailable, &store.NotActiveError{
		Store: "x", Partition: 4, Role: store.RoleStandby, RetryAfter: 150 * time.Millisecond,
	}},
	statemeshv1.Reason_REASON_INTERNAL: {codes.Internal, ErrInternal},
}

// GN-09: every reason goes out and comes back as the same error, alone, wrapped, as a bare sentinel, and over two hops.
func TestEveryReasonBothWays(t *testing.T) {
	t.Parallel()
	rows := map[statemeshv1.Reason]*row{}
	for i := range table {
		if rows[table[i].reason] != nil {
			t.Errorf("%s has two rows", table[i].reason)
		}
		rows[table[i].reason] = &table[i]
	}
	for n := range statemeshv1.Reason_name {
		r := statemeshv1.Reason(n)
		if r == statemeshv1.Reason_REASON_UNSPECIFIED {
			continue
		}
		t.Run(r.String(), func(t *testing.T) {
			t.Parallel()
			row, ok := rows[r]
			if !ok {
				t.Fatal("no row in the table")
			}
			s, ok := samples[r]
			if !ok {
				t.Fatal("no sample: add one with every field set")
			}
			for name, out := range map[string]error{
				"plain":    s.err,
				"wrapped":  fmt.Errorf("get flights: %w", s.err),
				"joined":   errors.Join(errors.New("first"), s.err),
				"sentinel": row.sentinel,
			} {
				wireErr := ToStatus(out)
				if got := status.Code(wireErr); got != s.code {
					t.Errorf("%s: code %s, want %s", name, got, s.code)
				}
				in := FromStatus(wireErr)
				if !errors.Is(in, row.sentinel) {
					t.Errorf("%s: came back as %v, which is not %v", name, in, row.sentinel)
				}
				if Reason(in) != r {
					t.Errorf("%s: came back for %s", name, Reason(in))
				}
				for i := range table {
					if other := &table[i]; other.reason != r && errors.Is(in, other.sentinel) {
						t.Errorf("%s: is also %v", name, other.sentinel)
					}
				}
				if name != "sentinel" && !reflect.DeepEqual(errors.Unwrap(in), s.err) {
					t.Errorf("%s: facts\n got %#v\nwant %#v", name, errors.Unwrap(in), s.err)
				}
				if !row.terse && in.Error() != out.Error() {
					t.Errorf("%s: text %q, want %q", name, in.Error(), out.Error())
				}
				hop := FromStatus(ToStatus(fmt.Errorf("forward: %w", in)))
				if !reflect.DeepEqual(errors.Unwrap(hop), errors.Unwrap(in)) || status.Code(ToStatus(hop)) != s.code {
					t.Errorf("%s: a second hop changed %#v into %#v", name, in, hop)
				}
			}
		})
	}
}

// SC-07: what has no row leaves nothing of its text, nor does what wraps an engine's error.
func TestTextOfUnknownErrorsStaysAtHome(t *testing.T) {
	t.Parallel()
	const canary = "canary-5f3a"
	for _, err := range []error{
		errors.New("engine: value " + canary),
		fmt.Errorf("%w: bad block with %s", store.ErrCorrupt, canary),
		fmt.Errorf("%s: %w", canary, store.ErrClosed),
	} {
		st, _ := status.FromError(ToStatus(err))
		if strings.Contains(st.Proto().String(), canary) {
			t.Errorf("%v leaves %v", err, st.Proto())
		}
	}
}

// GN-10: no text makes a status that cannot be marshalled, and none is too long for a header.
func TestTextIsFitForAStatus(t *testing.T) {
	t.Parallel()
	e := &store.InvalidRequestError{Field: "a\xff\xfe\x00", Reason: strings.Repeat("\xffé", 5000)}
	st, _ := status.FromError(ToStatus(e))
	if st.Code() != codes.InvalidArgument || !utf8.ValidString(st.Message()) || len(st.Message()) > maxText {
		t.Errorf("code %s, %d bytes", st.Code(), len(st.Message()))
	}
}

// GN-04: a message above the limit of the transport is no overload, and the server's overload is.
func TestBareStatuses(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]error{
		codes.ResourceExhausted: store.ErrTooLarge,
		codes.Unavailable:       ErrUnreachable,
		codes.DeadlineExceeded:  context.DeadlineExceeded,
		codes.Canceled:          context.Canceled,
		codes.Unimplemented:     store.ErrInvalidRequest,
		codes.Unauthenticated:   store.ErrPermissionDenied,
		codes.Unknown:           ErrInternal,
	} {
		got := FromStatus(status.Error(code, "x"))
		if !errors.Is(got, want) || errors.Is(got, store.ErrOverloaded) {
			t.Errorf("%s: %v, want %v", code, got, want)
		}
	}
	if err := FromStatus(nil); err != nil {
		t.Error(err)
	}
	if ToStatus(nil) != nil {
		t.Error("nil became a status")
	}
	plain := errors.New("x")
	if !errors.Is(FromStatus(plain), plain) {
		t.Error("an error without a status changed")
	}
}

// A reason of a later version is taken by its code; a reason of another domain is none of ours.
func TestForeignReasons(t *testing.T) {
	t.Parallel()
	for _, info := range []*errdetails.ErrorInfo{
		{Domain: Domain, Reason: "OF_A_LATER_VERSION"}, {Domain: "elsewhere", Reason: "MOVED"},
	} {
		st, err := status.New(codes.Unavailable, "x").WithDetails(info)
		if err != nil {
			t.Fatal(err)
		}
		got := FromStatus(st.Err())
		if !errors.Is(got, ErrUnreachable) || errors.Is(got, store.ErrMoved) {
			t.Errorf("%v: %v", info, got)
		}
	}
}
