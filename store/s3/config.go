package s3

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"gopkg.in/ini.v1"

	"github.com/bulkscan/bulkscan/store"
)

// This file says which server is used, with which settings.

// Config says where a Store is. Zero values are defaults; Bucket is required.
type Config struct {
	Bucket string
	Prefix string // prefix of all keys, without slashes at its ends; "" is the whole bucket

	Endpoint string // of the server, as https://HOST:PORT; "" is Amazon's
	Region   string // "" gets it from the server
	Style    Style  // style of addresses
	CAFile   string // PEM file of authorities that replace the system's

	// "": from the environment, the files of the AWS tools, or the machine's role
	AccessKey, SecretKey, SessionToken string

	Spool    string        // folder of temporary files; "" is the system's (TMPDIR)
	PartSize int64         // bytes of a part, at least 5 MiB; 0 is 16 MiB. An object has at most 10,000 parts
	Patience time.Duration // how long a failing call is repeated; 0 is 3 minutes
	Stall    time.Duration // how long a connection may be idle before it is closed; 0 is 30 s
	Lease    time.Duration // how long a lock outlives its holder: 1 s to 1 h; 0 is 30 s

	firstPatience time.Duration // Patience until the server has answered once
	discardTime   time.Duration // time limit for discarding a draft or releasing a lock; 0 is 10 s
	page          int           // entries in one page of a listing; 0 is the server's default

	dial func(ctx context.Context, network, address string) (net.Conn, error) // opens connections; nil is the system's
}

// Defaults of Config.
const (
	DefaultPartSize = 16 << 20
	DefaultPatience = 3 * time.Minute
	DefaultStall    = 30 * time.Second
	DefaultLease    = 30 * time.Second
)

const minPartSize = 5 << 20 // the minimum of S3, except for the last part

// Style is the form of a bucket's address.
type Style int

// Values of Style.
const (
	Auto    Style = iota // virtual at Amazon, Google and Alibaba, path everywhere else
	Path                 // https://HOST/BUCKET/KEY
	Virtual              // https://BUCKET.HOST/KEY
)

var styles = map[string]Style{"": Auto, "auto": Auto, "path": Path, "virtual": Virtual}

// String returns s3://BUCKET/PREFIX.
func (c Config) String() string {
	return "s3://" + c.Bucket + "/" + c.Prefix
}

// server names the server for messages.
func (c Config) server() string {
	if c.Endpoint == "" {
		return "Amazon S3"
	}
	return c.Endpoint
}

// complete sets defaults and checks the Config.
func (c *Config) complete() error {
	if err := s3utils.CheckValidBucketNameStrict(c.Bucket); err != nil {
		return fmt.Errorf("bucket %q: %w", clip(c.Bucket), err)
	}
	if strings.HasSuffix(c.Bucket, "--x-s3") {
		return fmt.Errorf("bucket %q: a directory bucket (S3 Express) lists in no order, and cannot be used", clip(c.Bucket))
	}
	if c.Prefix != "" {
		if err := store.CheckName(c.Prefix); err != nil {
			return fmt.Errorf("prefix in the bucket: %w", err)
		}
	}
	if c.PartSize == 0 {
		c.PartSize = DefaultPartSize
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if c.firstPatience == 0 {
		c.firstPatience = 10 * time.Second
	}
	if c.discardTime == 0 {
		c.discardTime = 10 * time.Second
	}
	if c.Stall == 0 {
		c.Stall = DefaultStall
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	switch {
	case c.PartSize < minPartSize:
		return fmt.Errorf("parts of %d bytes: at least %d", c.PartSize, minPartSize)
	case c.Lease < minLease || c.Lease > maxLease:
		return fmt.Errorf("a lease of %v: from %v to %v", c.Lease, minLease, maxLease)
	case (c.AccessKey == "") != (c.SecretKey == ""):
		return errors.New("an access key and a secret key go together")
	}
	return nil
}

// ParsePlace parses s3://BUCKET/PREFIX. Its errors never repeat text that may be a secret.
func ParsePlace(place string) (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(place, "s3://")
	if !ok {
		return "", "", errors.New("a place in an object store is written s3://BUCKET/PREFIX")
	}
	bucket, prefix, _ = strings.Cut(rest, "/")
	prefix = strings.TrimSuffix(prefix, "/")
	switch {
	case bucket == "":
		return "", "", errors.New("s3:// without a bucket: write s3://BUCKET/PREFIX")
	case strings.Contains(bucket, "@"):
		return "", "",
			errors.New(
				"s3:// with credentials: they do not belong there; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
	case strings.Contains(bucket, ":"):
		return "", "", errors.New("s3:// with a server: write s3://BUCKET/PREFIX, and set AWS_ENDPOINT_URL_S3 to the server")
	case strings.ContainsAny(rest, "?#"):
		return "", "", errors.New("s3:// with ? or #: server and region are set by AWS_ENDPOINT_URL_S3 and AWS_REGION")
	}
	c := Config{Bucket: bucket, Prefix: prefix}
	return bucket, prefix, c.complete()
}

// FromEnvironment returns the Config of a place s3://BUCKET/PREFIX, with the settings that the AWS tools take from the
// environment and from their files:
//
//	server   AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url of the profile; none of them where
//	         AWS_IGNORE_CONFIGURED_ENDPOINT_URLS, or ignore_configured_endpoint_urls of the profile, is true
//	region   AWS_REGION, AWS_DEFAULT_REGION, region of the profile
//	style    BULKSCAN_S3_STYLE (auto, path, virtual), addressing_style of the profile
//	trust    AWS_CA_BUNDLE, ca_bundle of the profile
//	lease    BULKSCAN_S3_LEASE, a duration
//
// The profile is AWS_PROFILE, which must exist, or else default, in AWS_CONFIG_FILE, or else ~/.aws/config. Credentials
// are found later, for the first signed request.
func FromEnvironment(place string) (Config, error) {
	var c Config
	var err error
	if c.Bucket, c.Prefix, err = ParsePlace(place); err != nil {
		return c, err
	}
	p, err := readProfile()
	if err != nil {
		return c, err
	}
	c.Region = cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), p.region)
	c.CAFile = cmp.Or(os.Getenv("AWS_CA_BUNDLE"), p.caFile)
	if c.Endpoint, err = p.server(); err != nil {
		return c, err
	}
	if text := os.Getenv("BULKSCAN_S3_LEASE"); text != "" {
		if c.Lease, err = time.ParseDuration(text); err != nil || c.Lease < minLease || c.Lease > maxLease {
			return c, fmt.Errorf("BULKSCAN_S3_LEASE: %q is not a duration from %v to %v", clip(text), minLease, maxLease)
		}
	}
	style := cmp.Or(os.Getenv("BULKSCAN_S3_STYLE"), p.style)
	var ok bool
	if c.Style, ok = styles[strings.ToLower(style)]; !ok {
		return c, fmt.Errorf("BULKSCAN_S3_STYLE, or addressing_style of the profile: %q is none of auto, path, virtual",
			clip(style))
	}
	return c, nil
}

// server returns the address of the server as https://HOST:PORT, or "" if none is set.
func (p *profile) server() (string, error) {
	if strings.EqualFold(cmp.Or(os.Getenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"), p.ignore), "true") {
		return "", nil
	}
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if text := os.Getenv(name); text != "" {
			return checkEndpoint(name, text)
		}
	}
	if p.endpoint != "" {
		return checkEndpoint("endpoint_url of the profile", p.endpoint)
	}
	return "", nil
}

// checkEndpoint returns the address of a server as https://HOST:PORT.
func checkEndpoint(setting, text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.User != nil:
		return "", fmt.Errorf("the server (%s): want https://HOST:PORT without user and password", setting)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", strings.Trim(u.Path, "/") != "", u.RawQuery != "",
		u.Fragment != "":
		return "", fmt.Errorf("the server (%s) %q: want https://HOST:PORT and nothing after it", setting, clip(text))
	}
	return u.Scheme + "://" + u.Host, nil
}

// profile has the settings of the AWS tools' configuration file about servers.
type profile struct{ region, endpoint, ignore, style, caFile string }

// readProfile reads the profile. A missing file counts as empty. An unreadable file is an error, and so is a profile
// that AWS_PROFILE names but neither file has.
func readProfile() (p profile, err error) {
	config, shared := toolFiles()
	lenient := ini.LoadOptions{AllowNestedValues: true, SkipUnrecognizableLines: true}
	file, err := readTools(config, lenient)
	if err != nil {
		return p, err
	}
	name := profileName()
	section := profileIn(file, name)
	if os.Getenv("AWS_PROFILE") != "" && section.Name() == noSection {
		keys, err := readTools(shared, lenient)
		if err != nil {
			return p, err
		}
		if sectionOf(keys, name).Name() == noSection {
			return p, fmt.Errorf("the profile %q (AWS_PROFILE) is neither in %s nor in %s", clip(name), clip(config),
				clip(shared))
		}
	}
	p.region = section.Key("region").String()
	p.caFile = section.Key("ca_bundle").String()
	p.style = nested(section, "s3", "addressing_style")
	p.ignore = section.Key("ignore_configured_endpoint_urls").String()
	p.endpoint = section.Key("endpoint_url").String()
	if services := section.Key("services").String(); services != "" {
		p.endpoint = cmp.Or(nested(sectionOf(file, "services "+services), "s3", "endpoint_url"), p.endpoint)
	}
	return p, nil
}

// profileName returns the name of the profile in use.
func profileName() string { return cmp.Or(os.Getenv("AWS_PROFILE"), "default") }

// toolFiles returns the paths of the AWS tools' files: the configuration, and the credentials. "" is no file.
func toolFiles() (config, shared string) {
	config, shared = os.Getenv("AWS_CONFIG_FILE"), os.Getenv("AWS_SHARED_CREDENTIALS_FILE")
	if home, err := os.UserHomeDir(); err == nil { // without a home there are no such files
		config = cmp.Or(config, filepath.Join(home, ".aws", "config"))
		shared = cmp.Or(shared, filepath.Join(home, ".aws", "credentials"))
	}
	return config, shared
}

// readTools reads a file of the AWS tools. A missing file is empty. Errors do not quote its text.
func readTools(path string, o ini.LoadOptions) (*ini.File, error) {
	if path == "" {
		return ini.Empty(), nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ini.Empty(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read a file of the AWS tools: %w", err)
	}
	file, err := ini.LoadSources(o, text)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read as an ini file%s", clip(path), lineOf(text, err))
	}
	return file, nil
}

// lineOf returns the line of a syntax error, if the library knows it.
func lineOf(text []byte, err error) string {
	var line string
	if e, ok := errors.AsType[ini.ErrDelimiterNotFound](err); ok {
		line = e.Line
	} else if e, ok := errors.AsType[ini.ErrEmptyKeyName](err); ok {
		line = e.Line
	}
	if line = strings.TrimSpace(line); line == "" {
		return ""
	}
	for i, is := range strings.Split(string(text), "\n") {
		if strings.TrimSpace(is) == line {
			return fmt.Sprintf(" (line %d)", i+1)
		}
	}
	return ""
}

// noSection is the name of a section that does not exist, and is thus empty.
const noSection = "DEFAULT"

// sectionOf returns a section of a file.
func sectionOf(file *ini.File, name string) *ini.Section {
	if section, err := file.GetSection(name); err == nil {
		return section
	}
	return ini.Empty().Section(noSection)
}

// profileIn returns the section of a profile in the configuration file.
func profileIn(file *ini.File, name string) *ini.Section {
	section := sectionOf(file, "profile "+name)
	if section.Name() == noSection && name == "default" {
		section = sectionOf(file, name)
	}
	return section
}

// nested returns a setting of a group, which is indented below the group's name.
func nested(section *ini.Section, group, name string) string {
	for _, line := range section.Key(group).NestedValues() {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// The library pauses after its last attempt, too, although none follows.
func init() { minio.DefaultRetryUnit = 0 }

// client returns the library's client without its retries, since this package has its own.
func (c *Config) client() (minio.Core, *keys, error) {
	endpoint := c.Endpoint
	if endpoint == "" {
		endpoint = "https://s3.amazonaws.com"
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return minio.Core{}, nil, err
	}
	transport, err := c.transport()
	if err != nil {
		return minio.Core{}, nil, err
	}
	keys := &keys{static: credentials.Value{AccessKeyID: c.AccessKey, SecretAccessKey: c.SecretKey,
		SessionToken: c.SessionToken, SignerType: credentials.SignatureV4}}
	client, err := minio.NewCore(u.Host, &minio.Options{
		Creds: credentials.New(keys), Secure: u.Scheme == "https", Transport: transport, Region: c.Region, MaxRetries: 1,
		BucketLookup: map[Style]minio.BucketLookupType{Auto: minio.BucketLookupAuto, Path: minio.BucketLookupPath,
			Virtual: minio.BucketLookupDNS}[c.Style],
	})
	if err != nil {
		return minio.Core{}, nil, err
	}
	return *client, keys, nil
}

// connections bounds the connections to the server: uploads, some reads, and the renewal of a lock, which must not wait
// for them.
const connections = uploadsAtOnce + 12

func (c *Config) transport() (*http.Transport, error) {
	dial := c.dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: min(10*time.Second, c.Stall), KeepAlive: 15 * time.Second}).DialContext
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read AWS_CA_BUNDLE (or ca_bundle of the profile): %w", err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in AWS_CA_BUNDLE (or ca_bundle of the profile) %s", c.CAFile)
		}
	}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &movingConn{conn, c.Stall}, nil
		},
		TLSClientConfig:     trust,
		TLSHandshakeTimeout: min(10*time.Second, c.Stall),
		MaxConnsPerHost:     connections,
		MaxIdleConnsPerHost: connections,
		IdleConnTimeout:     c.Stall / 2,
		DisableCompression:  true, // stored bytes are read unchanged
	}, nil
}

// movingConn is a connection that is closed if no byte moves in either direction for a time. A slow transfer may take
// any time.
type movingConn struct {
	net.Conn
	stall time.Duration
}

func (c *movingConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *movingConn) Write(b []byte) (int, error) {
	// A write restarts the reader's time: the reader began to wait for the answer before the request was sent.
	if err := c.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
