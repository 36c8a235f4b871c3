package fetcher

import "bytes"

// cdnNames are the delivery networks that response fields reveal. If fields reveal two, the earlier in this list
// counts: the outer one, which answered us. The texts are values of the dataset's column `cdn`.
var cdnNames = []string{
	"cloudflare", "imperva", "sucuri", "ddos-guard", "akamai", "cloudfront", "fastly", "azure-front-door", "google",
	"bunny", "cdn77", "keycdn", "edgio", "alibaba", "tencent", "fly", "vercel", "netlify",
}

// cdnRule is one sign of a network: the field's value contains a text (lower case; "" matches any value).
type cdnRule struct{ contains, name string }

// cdnRules is the table of signs by field, as fasthttp spells field names.
var cdnRules = map[string][]cdnRule{
	"Server": {
		{"cloudflare", "cloudflare"},
		{"cloudfront", "cloudfront"},
		{"akamai", "akamai"},
		{"sucuri", "sucuri"},
		{"ddos-guard", "ddos-guard"},
		{"fastly", "fastly"},
		{"bunnycdn", "bunny"},
		{"keycdn", "keycdn"},
		{"cdn77", "cdn77"},
		{"ecacc", "edgio"},
		{"ecs (", "edgio"},
		{"google frontend", "google"},
		{"gws", "google"},
		{"esf", "google"},
		{"fly/", "fly"},
		{"vercel", "vercel"},
		{"netlify", "netlify"},
		{"tencent", "tencent"},
	},
	"Via":     {{"cloudfront", "cloudfront"}, {"1.1 google", "google"}, {"akamai", "akamai"}},
	"Cf-Ray":  {{"", "cloudflare"}},
	"X-Iinfo": {{"", "imperva"}},
	"X-Cdn": {{"imperva", "imperva"}, {"incapsula", "imperva"}, {"akamai", "akamai"},
		{"bunny", "bunny"}},
	"X-Sucuri-Id":                      {{"", "sucuri"}},
	"Akamai-Grn":                       {{"", "akamai"}},
	"X-Akamai-Transformed":             {{"", "akamai"}},
	"X-Akamai-Request-Id":              {{"", "akamai"}},
	"X-Amz-Cf-Id":                      {{"", "cloudfront"}},
	"X-Amz-Cf-Pop":                     {{"", "cloudfront"}},
	"X-Fastly-Request-Id":              {{"", "fastly"}},
	"X-Served-By":                      {{"cache-", "fastly"}},
	"X-Azure-Ref":                      {{"", "azure-front-door"}},
	"Cdn-Pullzone":                     {{"", "bunny"}},
	"Cdn-Requestid":                    {{"", "bunny"}},
	"X-77-Nzt":                         {{"", "cdn77"}},
	"X-Edge-Location":                  {{"", "keycdn"}},
	"Eagleid":                          {{"", "alibaba"}},
	"Ali-Swift-Global-Savetime":        {{"", "alibaba"}},
	"X-Nws-Log-Uuid":                   {{"", "tencent"}},
	"Fly-Request-Id":                   {{"", "fly"}},
	"X-Vercel-Id":                      {{"", "vercel"}},
	"X-Nf-Request-Id":                  {{"", "netlify"}},
	"X-Goog-Generation":                {{"", "google"}},
	"X-Cloud-Trace-Context":            {{"", "google"}},
	"X-Ec-Custom-Error":                {{"", "edgio"}},
	"X-Ddos-Guard-Id":                  {{"", "ddos-guard"}},
	"X-Guploader-Uploadid":             {{"", "google"}},
	"X-Bunny-Request-Id":               {{"", "bunny"}},
	"X-Fastly-Backend-Reqs":            {{"", "fastly"}},
	"X-Msedge-Ref":                     {{"", "azure-front-door"}},
	"X-Azure-Fdid":                     {{"", "azure-front-door"}},
	"X-Edgeconnect-Midmile-Rtt":        {{"", "akamai"}},
	"X-Edgeconnect-Origin-Mex-Latency": {{"", "akamai"}},
}

// cdnSign is a cdnRule with its network as an index of cdnNames.
type cdnSign struct {
	contains []byte
	name     int
}

var cdnFields = func() map[string][]cdnSign {
	index := make(map[string]int, len(cdnNames))
	for i, name := range cdnNames {
		index[name] = i
	}
	fields := make(map[string][]cdnSign, len(cdnRules))
	for field, rules := range cdnRules {
		for _, rule := range rules {
			fields[field] = append(fields[field], cdnSign{[]byte(rule.contains), index[rule.name]})
		}
	}
	return fields
}()

// matchCDN returns the index of the first network in cdnNames whose sign is in the value, or len(cdnNames). It looks at
// the value's first 128 bytes only.
func matchCDN(signs []cdnSign, value []byte) int {
	var folded [128]byte
	n := copy(folded[:], value)
	for i, c := range folded[:n] {
		if c >= 'A' && c <= 'Z' {
			folded[i] = c | 0x20
		}
	}
	best := len(cdnNames)
	for _, sign := range signs {
		if sign.name < best && bytes.Contains(folded[:n], sign.contains) {
			best = sign.name
		}
	}
	return best
}
