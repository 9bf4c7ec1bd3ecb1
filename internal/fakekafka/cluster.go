package fakekafka

import (
	"math"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// New starts a cluster; Close it. Its transactions are told right to who reads committed records.
func New(opts ...kfake.Opt) (*kfake.Cluster, error) {
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, err
	}
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		wholePartitions(req)
		return nil, nil, false
	})
	return cluster, nil
}

// wholePartitions takes the bound on all partitions together out of a fetch. kfake that meets it in the middle of a partition leaves
// out which of the partition's transactions were aborted, and the client takes their records for committed. The bound on each
// partition remains.
func wholePartitions(req kmsg.Request) {
	if f, ok := req.(*kmsg.FetchRequest); ok {
		f.MaxBytes = math.MaxInt32
	}
}
