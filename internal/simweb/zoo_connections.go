package simweb

var nameRows = []Behaviour{
	{Name: "alias", Share: 0.03, Does: "the name leads over two CNAME records", Ends: "answered 200", name: nameAlias},
	{Name: "dns-truncated", Share: 0.002, Does: "the answer is truncated over UDP, whole over TCP", Ends: "answered 200", name: nameTruncated},
	{Name: "dns-slow", Share: 0.002, Does: "the answer comes after 200 ms", Ends: "answered 200", name: nameSlow},
	{Name: "nxdomain", Share: 0.003, Does: "the name does not exist", Ends: "dns_not_found", name: nameMissing},
	{Name: "no-address", Share: 0.001, Does: "the name exists and has neither A nor AAAA", Ends: "dns_not_found", name: nameNoAddress},
	{Name: "servfail", Share: 0.001, Does: "SERVFAIL", Ends: "dns_failed", name: nameServFail},
	{Name: "dns-refused", Does: "REFUSED", Ends: "dns_failed", name: nameRefused},
	{Name: "dns-silent", Share: 0.0003, Does: "the name server keeps silent", Ends: "dns_timeout", name: nameSilent},
	{Name: "dns-late", Does: "the answer comes after 600 ms, when resolvers ask again", Ends: "answered 200", name: nameLate},
	{Name: "dns-lost", Does: "the first question over UDP goes unanswered, for A and for AAAA", Ends: "answered 200", name: nameLost},
	{Name: "dns-wrong-id", Does: "before the answer over UDP comes another with a wrong id and an address where nobody listens", Ends: "answered 200", name: nameWrongID},
	{Name: "dns-wrong-question", Does: "before the answer over UDP comes one to another question, with an address where nobody listens", Ends: "answered 200", name: nameWrongQuestion},
	{Name: "dns-many", Does: "1,000 A records, by TCP", Ends: "answered 200", name: nameMany},
	{Name: "dns-changing", Does: "with each question another address, TTL 0", Ends: "answered 200", name: nameChanging},
	{Name: "dns-ipv6", Does: "no A, only AAAA: ::1", Ends: "answered 200", name: nameSix},
	{Name: "dns-zero", Does: "the address is 0.0.0.0, where nobody listens", Ends: "connect_refused; blocked_address without --allow-private", name: nameZero,
		hello: helloReset, reply: fails(endReset, resetOutcome)}, // the last two only where there is one address
	{Name: "dns-private", Does: "the address is one of loopback, where nobody listens", Ends: "connect_refused; blocked_address without --allow-private", place: placeNobody,
		hello: helloReset, reply: fails(endReset, resetOutcome)}, // as above
	{Name: "alias-loop", Share: 0.0001, Does: "two CNAME records point at each other", Ends: "dns_failed or dns_not_found", name: nameAliasLoop},
}

var connectionRows = []Behaviour{
	{Name: "refuse", Share: 0.003, Does: "nobody listens, on either port", Ends: "connect_refused", place: placeNobody,
		hello: helloReset, reply: fails(endReset, resetOutcome)}, // the last two only where there is one address
	{Name: "http-only", Share: 0.02, Does: "nobody listens on the TLS port", Ends: "answered 200 by http", place: placePlainOnly, hello: helloReset},
	{Name: "silent", Share: 0.0095, Does: "takes the connection and keeps silent, on both ports", Ends: "timeout", hello: helloHang,
		reply: fails(endHang, timeoutOutcome)},
	{Name: "black-hole", Does: "the first packet is lost, on either port", Ends: "connect_timeout", place: placeHole,
		hello: helloHang, reply: fails(endHang, timeoutOutcome)}, // the last two only where no packet can be lost
	{Name: "black-hole-beside", Does: "two A records, at one of which the first packet is lost; http is redirected to https", Ends: "answered 200 (1 hop from http)", name: nameBesideHole,
		reply: toHTTPS},
	{Name: "black-hole-beside-ipv6", Does: "an A record where the first packet is lost, and AAAA: ::1; http is redirected to https", Ends: "answered 200 (1 hop from http)", name: nameSixBesideHole,
		reply: toHTTPS},
}

var tlsRows = []Behaviour{
	{Name: "tls-expired", Share: 0.008, Does: "an expired certificate", Ends: "answered 200, unverified", hello: helloExpired},
	{Name: "tls-self-signed", Share: 0.006, Does: "a certificate signed by itself", Ends: "answered 200, unverified", hello: helloSelfSigned},
	{Name: "tls-wrong-name", Share: 0.015, Does: "a certificate for another name", Ends: "answered 200, unverified", hello: helloWrongName},
	{Name: "tls-unknown-ca", Share: 0.002, Does: "a certificate of an authority that nobody knows", Ends: "answered 200, unverified", hello: helloUnknownCA},
	{Name: "tls-12", Share: 0.05, Does: "TLS 1.2 at most", Ends: "answered 200", hello: hello12Only},
	{Name: "tls-10", Share: 0.001, Does: "TLS 1.0 at most", Ends: "answered 200 by http", hello: hello10Only},
	{Name: "tls-silent", Share: 0.0005, Does: "the TLS port keeps silent", Ends: "answered 200 by http", hello: helloHang},
	{Name: "tls-reset", Share: 0.003, Does: "the TLS port resets after the hello", Ends: "answered 200 by http", hello: helloReset},
	{Name: "tls-close", Share: 0.002, Does: "the TLS port closes after the hello", Ends: "answered 200 by http", hello: helloClose},
	{Name: "tls-alert", Share: 0.002, Does: "the TLS port ends the handshake with an alert", Ends: "answered 200 by http", hello: helloAlert},
	{Name: "tls-plain", Share: 0.003, Does: "the TLS port speaks plain HTTP", Ends: "answered 200 by http", hello: helloPlain},
	{Name: "tls-drip", Does: "the TLS port sends its handshake at a byte a second", Ends: "answered 200 by http", hello: helloDrip},
	{Name: "tls-stall", Does: "the TLS port sends most of a chain of 500 certificates, and then a byte a second", Ends: "answered 200 by http", hello: helloStall},
	{Name: "tls-garbage", Does: "the TLS port answers the hello with bytes of no meaning", Ends: "answered 200 by http", hello: helloGarbage},
	{Name: "tls-other-protocol", Does: "the TLS port speaks no HTTP, and says so (ALPN)", Ends: "answered 200 by http", hello: helloOtherProtocol},
	{Name: "tls-long-chain", Does: "a chain of 100 certificates", Ends: "answered 200", hello: helloLongChain},
}
