// A module of its own, so that what bulkscan is compared with is not among what bulkscan is made of.
module github.com/bulkscan/bulkscan/bench/peers

go 1.26.0

require (
	github.com/benjaminestes/robots/v2 v2.0.5
	github.com/bulkscan/bulkscan v0.0.0
	github.com/jimsmart/grobotstxt v1.0.3
	github.com/samclarke/robotstxt v0.0.0-20171127213916-2817654b7988
	github.com/temoto/robotstxt v1.1.2
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/bulkscan/bulkscan => ../..
