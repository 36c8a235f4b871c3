package fetcher

import "strings"

// challengeMark is a header field that marks a response as a bot challenge instead of the site's answer, as its vendor
// documents. The complete value is compared, ignoring case.
type challengeMark struct {
	field  string // as fasthttp spells it
	values []string
	vendor string // a value of the dataset's column `challenge`
}

// challengeMarks is the table of marks. It leaves out vendors whose challenges can only be recognised by the page's
// text, or by fields that other responses contain, too.
var challengeMarks = []challengeMark{
	// developers.cloudflare.com: Detect a Challenge Page response
	{"Cf-Mitigated", []string{"challenge"}, "cloudflare"},
	// docs.aws.amazon.com, WAF: CAPTCHA and Challenge action behavior (with status 405 and 202)
	{"X-Amzn-Waf-Action", []string{"challenge", "captcha"}, "aws-waf"},
	// vercel.com, Vercel Firewall: challenge actions (with status 403 or 429); the field has other values where it denies
	{"X-Vercel-Mitigated", []string{"challenge"}, "vercel"},
}

// challengeOf returns whose challenge a field marks; "" if none.
func challengeOf(field string, value []byte) string {
	for i := range challengeMarks {
		mark := &challengeMarks[i]
		if mark.field != field {
			continue
		}
		for _, v := range mark.values {
			if strings.EqualFold(strings.TrimSpace(string(value)), v) {
				return mark.vendor
			}
		}
	}
	return ""
}
