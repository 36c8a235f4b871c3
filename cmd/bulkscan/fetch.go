package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/fetcher"
	"github.com/bulkscan/bulkscan/fetcher/resolve"
	"github.com/bulkscan/bulkscan/inputs"
	"github.com/bulkscan/bulkscan/internal/limits"
	"github.com/bulkscan/bulkscan/origin"
	"github.com/bulkscan/bulkscan/simweb"
)

// fetchFlags say how one origin is fetched; scan, demo and check have them.
type fetchFlags struct {
	fetcher.Config // as far as flags set its fields; fetcher sets the others

	userAgent string
	contact   string
	resolver  []string
	dnsRate   float64
	connectTo []string
	scheme    string
	sourceIP  string
	tlsMin    string
	caFile    string
	optOut    string
	tokens    string

	// the built-in web: trusted instead of caFile, with a short wait for its silent hosts; nil: none
	web   *simweb.Web
	files limits.Files // what may be open; the zero value leaves it to the packages

	log *slog.Logger // gets a line when a name server fails or recovers; nil: none
}

func (f *fetchFlags) add(flags *pflag.FlagSet) {
	flags.DurationVar(&f.Timeout, "timeout", 15*time.Second, "one exchange, from dialling to the body's end")
	flags.DurationVar(&f.ConnectTimeout, "connect-timeout", 5*time.Second, "to take the connection, within --timeout")
	flags.DurationVar(&f.TLSTimeout, "tls-timeout", 0,
		"to finish the TLS handshake, within --timeout (0: no bound of its own)")
	flags.DurationVar(&f.HeaderTimeout, "header-timeout", 0,
		"to send the response head, within --timeout (0: no bound of its own)")
	flags.IntVar(&f.MaxRedirects, "max-redirects", fetcher.DefaultMaxRedirects,
		"redirects followed, over all schemes and hosts")
	flags.IntVar(&f.Retries, "retries", fetcher.DefaultRetries,
		"retries of 5xx, 408 and 429 answers and of transient failures")
	flags.DurationVar(&f.RetryAfter, "retry-after", fetcher.DefaultRetryAfter,
		"wait before the first retry, doubled for the next; 0s: at once")
	flags.DurationVar(&f.MaxRetryAfter, "max-retry-after", fetcher.DefaultMaxRetryAfter,
		"obey a server's Retry-After up to this")
	flags.IntVar(&f.MaxBody, "max-body", 512000, "bytes of a decoded body that are kept")
	flags.StringVar(&f.userAgent, "user-agent", "",
		"User-Agent header (default bulkscan/VERSION with where to learn more)")
	flags.StringVar(&f.contact, "contact", "", "URL or mail address for complaints, put into the User-Agent")
	flags.StringSliceVar(&f.resolver, "resolver", nil, "DNS servers to ask, HOST:PORT,… (default the system's)")
	flags.Float64Var(&f.dnsRate, "dns-rate", 1000,
		"DNS questions a second, in all (0: no limit); a name server that refuses some for their number gets fewer")
	flags.StringArrayVar(&f.connectTo, "connect-to", nil,
		"[HOST]:[PORT]:ADDR:PORT dials elsewhere, as curl's; an empty ADDR keeps the address")
	flags.StringVar(&f.scheme, "scheme", "https", "https or http: where to begin with entries that have no scheme")
	flags.BoolVar(&f.NoFallback, "no-fallback", false, "do not try the other scheme for entries that have none")
	flags.BoolVar(&f.AllowPrivate, "allow-private", false, "permit loopback, private and link-local addresses")
	flags.BoolVar(&f.IPv4, "ipv4", false, "only IPv4")
	flags.BoolVar(&f.IPv6, "ipv6", false, "only IPv6")
	flags.StringVar(&f.sourceIP, "source-ip", "", "local address to dial from")
	flags.BoolVar(&f.StrictTLS, "strict-tls", false, "an unverifiable certificate is a failure, rather than recorded")
	flags.StringVar(&f.tlsMin, "tls-min", "1.2", "oldest TLS version to speak: 1.0, 1.1, 1.2 or 1.3")
	flags.StringVar(&f.caFile, "ca-file", "", "PEM file of certificate authorities to trust (default the system's)")
	flags.StringVar(&f.optOut, "opt-out", "",
		"file of hosts, domains and address ranges that are never contacted, one a line; a range holds for every address that a name leads to; what is added while a scan runs holds within seconds")
	flags.StringVar(&f.tokens, "tokens", "", "file of further crawler tokens (format: bulkscan tokens --help)")
}

// furtherSockets is how many sockets the name servers after the first may take. It counts the servers of --resolver, or
// as many as a resolv.conf can name.
func (f *fetchFlags) furtherSockets() int {
	servers := len(f.resolver)
	if servers == 0 {
		servers = 3
	}
	return (servers - 1) * limits.SocketsEach
}

// asker makes the requests: it is the fetcher, and the resolver that finds the addresses.
type asker struct {
	*fetcher.Fetcher
	names  *resolve.Resolver
	optOut *inputs.FollowedOptOut // nil without --opt-out
}

// fetcher returns an asker for a network, and a function that closes it.
func (f *fetchFlags) fetcher(over network) (*asker, func(), error) {
	cfg := f.Config
	cfg.UserAgent, cfg.TLSMin, cfg.FTPData = f.agent(), tlsVersions[f.tlsMin], f.files.Transfers
	if f.scheme == "http" {
		cfg.Scheme = origin.HTTP
	}
	for _, text := range f.connectTo {
		to, err := fetcher.ParseConnectTo(text)
		if err != nil {
			return nil, nil, usagef("--connect-to %q: %w", text, err)
		}
		cfg.ConnectTo = append(cfg.ConnectTo, to)
	}
	names := resolve.Options{Rate: f.dnsRate, IPv4: f.IPv4, IPv6: f.IPv6, Log: f.log, Network: over.Network}
	if over.Network != nil {
		cfg.Dial = over.DialContext
	}
	if f.files.Sockets > 0 {
		names.MaxSockets = f.files.Sockets + f.furtherSockets()
	}
	if f.sourceIP != "" {
		ip, err := fetcher.ParseSourceIP(f.sourceIP)
		if err != nil {
			return nil, nil, usagef("--source-ip: %w", err)
		}
		cfg.SourceIP = ip
		if !f.IPv4 && !f.IPv6 {
			// The resolver looks up the addresses that can be dialled from this source address.
			names.IPv4, names.IPv6 = ip.Is4(), ip.Is6()
		}
	}
	if f.caFile != "" {
		pem, err := inputs.ReadText(context.Background(), f.caFile, false, 16<<20)
		if err != nil {
			return nil, nil, usagef("--ca-file: cannot read %s: %w", clipped(f.caFile), err)
		}
		cfg.Roots = x509.NewCertPool()
		if !cfg.Roots.AppendCertsFromPEM(pem) {
			return nil, nil, usagef("--ca-file %s: no certificate in it", f.caFile)
		}
	}
	var optOut *inputs.FollowedOptOut
	if f.optOut != "" {
		var err error
		if optOut, err = inputs.FollowOptOut(f.optOut); err != nil {
			return nil, nil, usagef("--opt-out: %w", err)
		}
		cfg.OptOut, cfg.OptOutAddr = optOut.Contains, optOut.Covers
	}
	resolver, err := resolve.New(f.resolver, names)
	if err != nil {
		return nil, nil, usagef("--resolver: %w", err)
	}
	cfg.Resolver = resolver
	if f.web != nil {
		cfg.Roots, cfg.Dial = f.web.CAPool(), f.web.ShortSilence(silence, (&net.Dialer{KeepAlive: -1}).DialContext)
		cfg.Resolver = simweb.ShortNames[resolve.Answer]{Resolver: resolver, Web: f.web, After: silence}
	}
	fetch, err := fetcher.New(cfg)
	if err != nil {
		return nil, nil, errors.Join(usage(err), resolver.Close())
	}
	return &asker{fetch, resolver, optOut}, func() { _ = resolver.Close() }, nil
}

// tlsVersions are the values of --tls-min.
var tlsVersions = map[string]uint16{"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12,
	"1.3": tls.VersionTLS13}

// home is where the program tells more about itself, and about what it does to the owner of a site that it visits.
const (
	home    = "https://github.com/bulkscan/bulkscan"
	botPage = home + "/blob/main/docs/bot.md"
)

// agent is the User-Agent header: what, which version, where to learn more, and whom to complain to.
func (f *fetchFlags) agent() string {
	agent := f.userAgent
	if agent == "" {
		agent = fmt.Sprintf("bulkscan/%s (+%s)", toolVersion(), botPage)
	}
	if f.contact == "" {
		return agent
	}
	if before, ok := strings.CutSuffix(agent, ")"); ok {
		return before + "; contact: " + f.contact + ")"
	}
	return agent + " (contact: " + f.contact + ")"
}
