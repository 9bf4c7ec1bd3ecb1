package wire

import (
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// The facts of each typed error, both ways. A pair per row of the table.

// Limits of the lists in a detail: a fleet of thousands must not make a status that no header takes.
const (
	maxKnown      = 100
	maxCandidates = 64
)

func encodeAbsent(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*AbsentError](err); ok {
		at(d, e.Store, e.Answer.Partition)
		d.Detail = &statemeshv1.ErrorDetail_NotFound{NotFound: &statemeshv1.NotFoundDetail{Answer: FromAnswer(e.Store, e.Answer)}}
	}
}

func decodeAbsent(d *statemeshv1.ErrorDetail) error {
	a, err := ToAnswer(d.GetNotFound().GetAnswer())
	if err != nil {
		return nil //nolint:nilerr // the sentinel then: an absence without a proof that can be read
	}
	return &AbsentError{Store: store.Name(d.GetStore()), Answer: a}
}

func encodeUnknownStore(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.UnknownStoreError](err); ok {
		d.Store = clip(string(e.Store))
		u := &statemeshv1.UnknownStoreDetail{}
		for _, n := range e.Known[:min(len(e.Known), maxKnown)] {
			u.Known = append(u.Known, clip(string(n)))
		}
		d.Detail = &statemeshv1.ErrorDetail_UnknownStore{UnknownStore: u}
	}
}

func decodeUnknownStore(d *statemeshv1.ErrorDetail) error {
	if d.GetUnknownStore() == nil {
		return nil
	}
	e := &store.UnknownStoreError{Store: store.Name(d.GetStore())}
	for _, n := range d.GetUnknownStore().GetKnown() {
		e.Known = append(e.Known, store.Name(n))
	}
	return e
}

func encodeWrongKind(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.WrongKindError](err); ok {
		d.Store = clip(string(e.Store))
		d.Detail = &statemeshv1.ErrorDetail_WrongStoreKind{WrongStoreKind: &statemeshv1.WrongStoreKindDetail{
			Kind: fromKind(e.Kind), Query: clip(e.Query),
		}}
	}
}

func decodeWrongKind(d *statemeshv1.ErrorDetail) error {
	v := d.GetWrongStoreKind()
	if v == nil {
		return nil
	}
	return &store.WrongKindError{Store: store.Name(d.GetStore()), Kind: toKind(v.GetKind()), Query: v.GetQuery()}
}

func encodeInvalidKey(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.InvalidKeyError](err); ok {
		d.Store = clip(string(e.Store))
		d.Detail = &statemeshv1.ErrorDetail_Invalid{Invalid: &statemeshv1.InvalidDetail{Problem: clip(e.Reason)}}
	}
}

func decodeInvalidKey(d *statemeshv1.ErrorDetail) error {
	if d.GetInvalid() == nil {
		return nil
	}
	return &store.InvalidKeyError{Store: store.Name(d.GetStore()), Reason: d.GetInvalid().GetProblem()}
}

func encodeInvalidRequest(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.InvalidRequestError](err); ok {
		d.Detail = &statemeshv1.ErrorDetail_Invalid{Invalid: &statemeshv1.InvalidDetail{
			Field: clip(e.Field), Problem: clip(e.Reason),
		}}
	}
}

func decodeInvalidRequest(d *statemeshv1.ErrorDetail) error {
	if d.GetInvalid() == nil {
		return nil
	}
	return &store.InvalidRequestError{Field: d.GetInvalid().GetField(), Reason: d.GetInvalid().GetProblem()}
}

func encodeTooLarge(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.TooLargeError](err); ok {
		d.Store = clip(string(e.Store))
		d.Detail = &statemeshv1.ErrorDetail_TooLarge{TooLarge: &statemeshv1.TooLargeDetail{
			What: clip(e.What), Size: e.Size, Limit: e.Limit, Setting: clip(e.Setting),
		}}
	}
}

func decodeTooLarge(d *statemeshv1.ErrorDetail) error {
	v := d.GetTooLarge()
	if v == nil {
		return nil
	}
	return &store.TooLargeError{
		Store: store.Name(d.GetStore()), What: v.GetWhat(), Size: v.GetSize(), Limit: v.GetLimit(), Setting: v.GetSetting(),
	}
}

func encodeMoved(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.MovedError](err); ok {
		at(d, e.Store, e.Partition)
		d.Detail = &statemeshv1.ErrorDetail_Moved{Moved: &statemeshv1.MovedDetail{
			To: fromInstance(clip(e.Instance), clip(e.Endpoint)), Epoch: e.Epoch,
		}}
	}
}

func decodeMoved(d *statemeshv1.ErrorDetail) error {
	v := d.GetMoved()
	if v == nil {
		return nil
	}
	return &store.MovedError{
		Store: store.Name(d.GetStore()), Partition: store.Partition(d.GetPartition()),
		Instance: v.GetTo().GetId(), Endpoint: v.GetTo().GetEndpoint(), Epoch: v.GetEpoch(),
	}
}

func encodeNotReady(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.NotReadyError](err); ok {
		at(d, e.Store, e.Partition)
		d.Detail = &statemeshv1.ErrorDetail_NotReady{NotReady: &statemeshv1.NotReadyDetail{
			Cause: clip(e.Reason), Restored: e.Restored, Total: e.Total, RetryAfter: fromDuration(e.RetryAfter),
			TimeLeft: fromDuration(e.Left), Building: e.Building,
		}}
	}
}

func decodeNotReady(d *statemeshv1.ErrorDetail) error {
	v := d.GetNotReady()
	if v == nil {
		return nil
	}
	return &store.NotReadyError{
		Store: store.Name(d.GetStore()), Partition: store.Partition(d.GetPartition()), Reason: v.GetCause(),
		Restored: v.GetRestored(), Total: v.GetTotal(), RetryAfter: toDuration(v.GetRetryAfter()),
		Left: toDuration(v.GetTimeLeft()), Building: v.GetBuilding(),
	}
}

func encodeNoReplica(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.NoReplicaError](err); ok {
		at(d, e.Store, e.Partition)
		v := &statemeshv1.NoReplicaDetail{Epoch: e.Epoch}
		for _, c := range e.Candidates[:min(len(e.Candidates), maxCandidates)] {
			v.Candidates = append(v.Candidates, &statemeshv1.Candidate{
				Instance: fromInstance(clip(c.Instance), clip(c.Endpoint)), Role: fromRole(c.Role), Reason: clip(c.Reason),
			})
		}
		d.Detail = &statemeshv1.ErrorDetail_NoReplica{NoReplica: v}
	}
}

func decodeNoReplica(d *statemeshv1.ErrorDetail) error {
	v := d.GetNoReplica()
	if v == nil {
		return nil
	}
	e := &store.NoReplicaError{
		Store: store.Name(d.GetStore()), Partition: store.Partition(d.GetPartition()), Epoch: v.GetEpoch(),
	}
	for _, c := range v.GetCandidates() {
		e.Candidates = append(e.Candidates, store.Candidate{
			Instance: c.GetInstance().GetId(), Endpoint: c.GetInstance().GetEndpoint(),
			Role: toRole(c.GetRole()), Reason: c.GetReason(),
		})
	}
	return e
}

func encodeWrongPartition(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.WrongPartitionError](err); ok {
		at(d, e.Store, e.Have)
		d.Detail = &statemeshv1.ErrorDetail_WrongPartition{WrongPartition: &statemeshv1.WrongPartitionDetail{
			Want: int32(e.Want),
		}}
	}
}

func decodeWrongPartition(d *statemeshv1.ErrorDetail) error {
	v := d.GetWrongPartition()
	if v == nil {
		return nil
	}
	return &store.WrongPartitionError{
		Store: store.Name(d.GetStore()), Have: store.Partition(d.GetPartition()), Want: store.Partition(v.GetWant()),
	}
}

func encodeOverloaded(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.OverloadedError](err); ok {
		d.Detail = &statemeshv1.ErrorDetail_Overloaded{Overloaded: &statemeshv1.OverloadedDetail{
			Limit: clip(e.Limit), RetryAfter: fromDuration(e.RetryAfter),
		}}
	}
}

func decodeOverloaded(d *statemeshv1.ErrorDetail) error {
	v := d.GetOverloaded()
	if v == nil {
		return nil
	}
	return &store.OverloadedError{Limit: v.GetLimit(), RetryAfter: toDuration(v.GetRetryAfter())}
}

func encodePermissionDenied(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.PermissionDeniedError](err); ok {
		d.Detail = &statemeshv1.ErrorDetail_PermissionDenied{PermissionDenied: &statemeshv1.PermissionDeniedDetail{
			Action: clip(e.Action), Problem: clip(e.Reason),
		}}
	}
}

func decodePermissionDenied(d *statemeshv1.ErrorDetail) error {
	v := d.GetPermissionDenied()
	if v == nil {
		return nil
	}
	return &store.PermissionDeniedError{Action: v.GetAction(), Reason: v.GetProblem()}
}

func encodeBehind(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.BehindError](err); ok {
		at(d, e.Store, e.Partition)
		// A token that fits no header is left out: who asked knows what it wanted.
		d.Detail = &statemeshv1.ErrorDetail_Behind{Behind: &statemeshv1.BehindDetail{
			Have: short(FromToken(e.Store, e.Have.At(e.Partition))), Want: short(FromToken(e.Store, e.Want.At(e.Partition))),
			RetryAfter: fromDuration(e.RetryAfter),
		}}
	}
}

// short is a token that a header takes, or nil.
func short(token []byte) []byte {
	if len(token) > maxText {
		return nil
	}
	return token
}

func decodeBehind(d *statemeshv1.ErrorDetail) error {
	v := d.GetBehind()
	if v == nil {
		return nil
	}
	e := &store.BehindError{
		Store: store.Name(d.GetStore()), Partition: store.Partition(d.GetPartition()), RetryAfter: toDuration(v.GetRetryAfter()),
	}
	for _, t := range []struct {
		from []byte
		to   *store.Token
	}{{v.GetHave(), &e.Have}, {v.GetWant(), &e.Want}} {
		if _, token, err := ToToken(t.from); err == nil {
			*t.to = token
		}
	}
	return e
}

func encodeNotActive(err error, d *statemeshv1.ErrorDetail) {
	if e, ok := errors.AsType[*store.NotActiveError](err); ok {
		at(d, e.Store, e.Partition)
		d.Detail = &statemeshv1.ErrorDetail_NotActive{NotActive: &statemeshv1.NotActiveDetail{
			Role: fromRole(e.Role), RetryAfter: fromDuration(e.RetryAfter),
		}}
	}
}

func decodeNotActive(d *statemeshv1.ErrorDetail) error {
	v := d.GetNotActive()
	if v == nil {
		return nil
	}
	return &store.NotActiveError{
		Store: store.Name(d.GetStore()), Partition: store.Partition(d.GetPartition()), Role: toRole(v.GetRole()),
		RetryAfter: toDuration(v.GetRetryAfter()),
	}
}

// at names store and partition.
func at(d *statemeshv1.ErrorDetail, s store.Name, p store.Partition) {
	d.Store = clip(string(s))
	d.Partition = new(int32(p))
}

func fromDuration(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(d)
}

func toDuration(d *durationpb.Duration) time.Duration { return max(0, d.AsDuration()) }
