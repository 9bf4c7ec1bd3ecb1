package flights

import (
	_ "embed"
	"slices"
)

//go:embed mesh.yaml
var mesh []byte

// Mesh is mesh.yaml: a configuration with the views that [Compute] has the answers for. The slice is the caller's.
func Mesh() []byte { return slices.Clone(mesh) }

// The views of [Mesh].
const (
	ViewByDest          = "flights_by_dest"
	ViewByCarrier       = "flights_by_carrier"
	ViewDelayByCarrier  = "dep_delay_by_carrier"
	ViewLatestByTailnum = "latest_by_tailnum"
)

// Topic is the topic that [Mesh] reads.
const Topic = "flights"
