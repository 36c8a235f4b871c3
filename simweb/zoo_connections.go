package simweb

var nameRows = []Behaviour{
	{Name: "alias", Share: 0.03, Does: "two CNAME records lead to the address", Ends: "answered 200", name: nameAlias},
	{Name: "dns-truncated", Share: 0.002, Does: "the answer is truncated over UDP, whole over TCP", Ends: "answered 200", name: nameTruncated},
	{Name: "dns-slow", Share: 0.002, Does: "the answer comes after 200 ms", Ends: "answered 200", name: nameSlow},
	{Name: "nxdomain", Share: 0.003, Does: "the name does not exist", Ends: "dns_not_found", name: nameMissing},
	{Name: "no-address", Share: 0.001, Does: "the name exists and has neither A nor AAAA", Ends: "dns_not_found", name: nameNoAddress},
	{Name: "servfail", Share: 0.001, Does: "SERVFAIL", Ends: "dns_failed", name: nameServFail},
	{Name: "dns-refused", Does: "REFUSED", Ends: "dns_failed", name: nameRefused},
	{Name: "dns-silent", Share: 0.0003, Does: "the name server stays silent", Ends: "dns_timeout", name: nameSilent},
	{Name: "dns-late", Does: "the answer comes after 600 ms, later than resolvers repeat the question", Ends: "answered 200", name: nameLate},
	{Name: "dns-lost", Does: "the first question over UDP for each record type is lost", Ends: "answered 200", name: nameLost},
	{Name: "dns-wrong-id", Does: "a forged answer with a wrong id arrives first", Ends: "answered 200", name: nameWrongID},
	{Name: "dns-wrong-question", Does: "a forged answer to another question arrives first", Ends: "answered 200", name: nameWrongQuestion},
	{Name: "dns-many", Does: "1,000 A records, by TCP", Ends: "answered 200", name: nameMany},
	{Name: "dns-changing", Does: "another address for each question, TTL 0", Ends: "answered 200", name: nameChanging},
	{Name: "dns-ipv6", Does: "no A, only AAAA: ::1", Ends: "answered 200", name: nameSix},
	{Name: "dns-zero", Does: "the address is 0.0.0.0, with no listener", Ends: "connect_refused; blocked_address without --allow-private", name: nameZero,
		hello: helloReset, reply: fails(endReset, resetOutcome)}, // hello and reply apply only where there is one address
	{Name: "dns-private", Does: "the address is loopback, with no listener", Ends: "connect_refused; blocked_address without --allow-private", place: placeVacant,
		hello: helloReset, reply: fails(endReset, resetOutcome)}, // as above
	{Name: "alias-loop", Share: 0.0001, Does: "two CNAME records point at each other", Ends: "dns_failed or dns_not_found", name: nameAliasLoop},
}

var connectionRows = []Behaviour{
	{Name: "refuse", Share: 0.003, Does: "no listener on either port", Ends: "connect_refused", place: placeVacant,
		hello: helloReset, reply: fails(endReset, resetOutcome)}, // hello and reply apply only where there is one address
	{Name: "http-only", Share: 0.02, Does: "no listener on the TLS port", Ends: "answered 200 by http", place: placePlainOnly, hello: helloReset},
	{Name: "silent", Share: 0.0095, Does: "both ports accept and stay silent", Ends: "timeout", hello: helloHang,
		reply: fails(endHang, timeoutOutcome)},
	{Name: "black-hole", Does: "the first packet is lost on either port", Ends: "connect_timeout", place: placeHole,
		hello: helloHang, reply: fails(endHang, timeoutOutcome)}, // hello and reply apply only where black holes do not exist
	{Name: "black-hole-beside", Does: "two A records, one of them a black hole; http redirects to https", Ends: "answered 200 (1 hop from http)", name: nameBesideHole,
		reply: toHTTPS},
	{Name: "black-hole-beside-ipv6", Does: "A is a black hole, AAAA is ::1; http redirects to https", Ends: "answered 200 (1 hop from http)", name: nameSixBesideHole,
		reply: toHTTPS},
}

var tlsRows = []Behaviour{
	{Name: "tls-expired", Share: 0.008, Does: "an expired certificate", Ends: "answered 200, unverified", hello: helloExpired},
	{Name: "tls-self-signed", Share: 0.006, Does: "a self-signed certificate", Ends: "answered 200, unverified", hello: helloSelfSigned},
	{Name: "tls-wrong-name", Share: 0.015, Does: "a certificate for another name", Ends: "answered 200, unverified", hello: helloWrongName},
	{Name: "tls-unknown-ca", Share: 0.002, Does: "a certificate of an unknown authority", Ends: "answered 200, unverified", hello: helloUnknownCA},
	{Name: "tls-12", Share: 0.05, Does: "TLS 1.2 at most", Ends: "answered 200", hello: hello12Only},
	{Name: "tls-10", Share: 0.001, Does: "TLS 1.0 at most", Ends: "answered 200 by http", hello: hello10Only},
	{Name: "tls-silent", Share: 0.0005, Does: "the TLS port stays silent", Ends: "answered 200 by http", hello: helloHang},
	{Name: "tls-reset", Share: 0.003, Does: "the TLS port resets after the hello", Ends: "answered 200 by http", hello: helloReset},
	{Name: "tls-close", Share: 0.002, Does: "the TLS port closes after the hello", Ends: "answered 200 by http", hello: helloClose},
	{Name: "tls-alert", Share: 0.002, Does: "the TLS port ends the handshake with an alert", Ends: "answered 200 by http", hello: helloAlert},
	{Name: "tls-plain", Share: 0.003, Does: "the TLS port speaks plain HTTP", Ends: "answered 200 by http", hello: helloPlain},
	{Name: "tls-drip", Does: "the handshake comes at a byte a second", Ends: "answered 200 by http", hello: helloDrip},
	{Name: "tls-stall", Does: "180 kB of a 500-certificate chain, then a byte a second", Ends: "answered 200 by http", hello: helloStall},
	{Name: "tls-garbage", Does: "the TLS port answers the hello with garbage", Ends: "answered 200 by http", hello: helloGarbage},
	{Name: "tls-other-protocol", Does: "the TLS port offers no HTTP (ALPN)", Ends: "answered 200 by http", hello: helloOtherProtocol},
	{Name: "tls-long-chain", Does: "a chain of 100 certificates", Ends: "answered 200", hello: helloLongChain},
}
