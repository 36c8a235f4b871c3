package sink

import "github.com/bulkscan/bulkscan/internal/sitetest"

// The sites that tests keep.
var (
	mustOrigin  = sitetest.Origin
	typicalSite = sitetest.Typical
	deadSite    = sitetest.Dead
	judgedSites = sitetest.Judged
)
