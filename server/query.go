package server

import (
	"cmp"
	"slices"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// queryService is the QueryService. Handlers return errors of the domain; the interceptors translate them.
type queryService struct {
	statemeshv1.UnsafeQueryServiceServer

	s *Server
}

// sealAll seals the answers of several partitions, ascending.
func (s *Server) sealAll(rd *read, worths []worth) ([]*statemeshv1.Answer, error) {
	slices.SortFunc(worths, func(a, b worth) int { return cmp.Compare(a.answer.Partition, b.answer.Partition) })
	out := make([]*statemeshv1.Answer, len(worths))
	for i, w := range worths {
		a, err := s.seal(rd, w)
		if err != nil {
			return nil, err
		}
		out[i] = wire.FromAnswer(rd.store, a)
	}
	return out, nil
}

func fromPartitions(parts []store.Partition) []int32 {
	out := make([]int32, len(parts))
	for i, p := range parts {
		out[i] = int32(p)
	}
	return out
}
