package s3

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"gopkg.in/ini.v1"
)

// keys finds out as whom requests are signed: what the Config says, or else the first that there is of
//
//   - AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN;
//   - a role by web identity (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN), as in Kubernetes;
//   - the profile AWS_PROFILE, or else default, in AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE, or else ~/.aws: keys,
//     a session of `aws sso login`, or credential_process; keys in a file may be replaced while we run;
//   - the role of the container or of the machine, unless AWS_EC2_METADATA_DISABLED is true.
//
// A source that is there and fails is an error: the next one would be another identity. Where there is none requests are
// not signed, which is enough to read a public bucket. Who has once signed never goes on without, or as another: only the
// source that had keys is asked for new ones.
type keys struct {
	static  credentials.Value
	source  *keySource   // the one that had keys
	nothing atomic.Bool  // there are none
	spent   atomic.Int64 // nanoseconds that finding them took
}

func (k *keys) anonymous() bool { return k.nothing.Load() }

// keySource is one place where there may be keys.
type keySource struct {
	what  string
	from  credentials.Provider
	named bool // so that having no keys is an error too
}

// errNoKeys says that a source is there, and is none of keys.
var errNoKeys = errors.New("it has no keys, no session and no credential_process")

// Retrieve implements credentials.Provider.
func (k *keys) Retrieve() (credentials.Value, error) { return k.RetrieveWithCredContext(nil) }

// RetrieveWithCredContext implements credentials.Provider. The library calls it from one goroutine at a time.
func (k *keys) RetrieveWithCredContext(cc *credentials.CredContext) (value credentials.Value, err error) {
	if k.static.AccessKeyID != "" {
		k.source = &keySource{from: &credentials.Static{Value: k.static}}
		return k.static, nil
	}
	begun := time.Now()
	defer func() {
		if err == nil {
			k.spent.Add(int64(time.Since(begun)))
		}
	}()
	if k.source != nil {
		if value, err = k.source.keys(cc); err != nil {
			return credentials.Value{}, fmt.Errorf("no new credentials from %s: %w", k.source.what, err) // it had some, and may again
		}
		return value, nil
	}
	for _, source := range keySources() {
		value, err := source.keys(cc)
		if err == nil {
			k.source = &source
			return value, nil
		}
		if cc != nil && cc.Context != nil && cc.Context.Err() != nil {
			return credentials.Value{}, cc.Context.Err()
		}
		if source.absent(err) {
			continue
		}
		err = fmt.Errorf("no credentials from %s: %w", source.what, err)
		if !passing(err) {
			err = &permanent{err}
		}
		return credentials.Value{}, err
	}
	k.nothing.Store(true)
	return credentials.Value{SignerType: credentials.SignatureAnonymous}, nil
}

// IsExpired implements credentials.Provider.
func (k *keys) IsExpired() bool {
	if k.nothing.Load() {
		return false // what was not there is not looked for at every request
	}
	return k.source == nil || k.source.from.IsExpired()
}

func (s *keySource) keys(cc *credentials.CredContext) (credentials.Value, error) {
	value, err := s.from.RetrieveWithCredContext(cc)
	if err == nil && (value.AccessKeyID == "" || value.SecretAccessKey == "") {
		err = errNoKeys
	}
	return value, err
}

// absent reports whether a failure means that this machine has no such source.
func (s *keySource) absent(err error) bool {
	if s.named {
		return false
	}
	if _, ok := s.from.(*credentials.IAM); ok {
		return !errors.Is(err, errBusy) // nobody at that address, or nobody who knows of a role
	}
	return errors.Is(err, errNoKeys)
}

// passing reports whether a failure of a source may be gone the next time, as those on the way to a server may.
func passing(err error) bool {
	_, network := errors.AsType[*url.Error](err)
	return network || errors.Is(err, io.ErrUnexpectedEOF)
}

// errBusy is a server of roles that is there and has no answer now.
var errBusy = errors.New("its server is busy")

// roleTransport makes errors of the answers by which a server says that it cannot answer now: the library would tell only
// their text.
type roleTransport struct{ http.RoundTripper }

func (t roleTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if err == nil && (answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests) {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%w (status %d)", errBusy, answer.StatusCode)
	}
	return answer, err
}

// keySources are those that there may be here, in their order.
func keySources() []keySource {
	set := func(name string) bool { return os.Getenv(name) != "" }
	identity := set("AWS_WEB_IDENTITY_TOKEN_FILE")
	container := set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") || set("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	// What answers is on the same machine, or nearly so. A laptop has nobody at these addresses and should not wait.
	role := &credentials.IAM{Client: &http.Client{Timeout: 2 * time.Second, Transport: roleTransport{http.DefaultTransport}}}
	if identity || container {
		role.Client.Timeout = 30 * time.Second
	}
	sources := []keySource{{what: "the environment", from: environmentKeys{}}}
	if identity {
		sources = append(sources, keySource{"the web identity in AWS_WEB_IDENTITY_TOKEN_FILE", webIdentity{role}, true})
	}
	name := profileName()
	sources = append(sources, keySource{fmt.Sprintf("the profile %s (AWS_PROFILE)", clip(name)), &profileKeys{name: name}, set("AWS_PROFILE")})
	switch {
	case identity: // the library asks for nothing else then
	case container:
		sources = append(sources, keySource{"the container's role (AWS_CONTAINER_CREDENTIALS_…)", role, true})
	case !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true"):
		sources = append(sources, keySource{what: "the machine's role", from: role})
	}
	return sources
}

// webIdentity is a role by web identity, which two variables name together. The library would leave it to a server far away
// to tell that one of them is missing.
type webIdentity struct{ *credentials.IAM }

// RetrieveWithCredContext implements credentials.Provider.
func (w webIdentity) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	if os.Getenv("AWS_ROLE_ARN") == "" {
		return credentials.Value{}, errors.New("AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not")
	}
	return w.IAM.RetrieveWithCredContext(cc)
}

// environmentKeys are the keys in the variables of the process, which never change.
type environmentKeys struct{}

func (environmentKeys) IsExpired() bool { return false }

// Retrieve implements credentials.Provider.
func (e environmentKeys) Retrieve() (credentials.Value, error) { return e.RetrieveWithCredContext(nil) }

// RetrieveWithCredContext implements credentials.Provider.
func (environmentKeys) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	value, err := (&credentials.EnvAWS{}).RetrieveWithCredContext(nil)
	switch {
	case err != nil:
		return value, err
	case value.AccessKeyID == "" && value.SecretAccessKey == "":
		return value, errNoKeys
	case value.AccessKeyID == "":
		return value, errors.New("AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not")
	case value.SecretAccessKey == "":
		return value, errors.New("AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not")
	}
	return value, nil
}

// notFollowed are settings of a profile by which the AWS tools get keys where we do not.
var notFollowed = []string{"role_arn", "source_profile", "credential_source", "web_identity_token_file", "login_session"}

// profileKeys are those of a profile in the files of the AWS tools. The files are read here first, so that no text of
// theirs gets into an error, and so that a profile that says nothing of keys can be told from one that fails.
type profileKeys struct {
	name    string
	library credentials.FileAWSCredentials
	session bool // keys are the library's, with an end; else they stand in a file, which is read each time
}

// IsExpired implements credentials.Provider.
func (p *profileKeys) IsExpired() bool { return !p.session || p.library.IsExpired() }

// Retrieve implements credentials.Provider.
func (p *profileKeys) Retrieve() (credentials.Value, error) { return p.RetrieveWithCredContext(nil) }

// RetrieveWithCredContext implements credentials.Provider.
func (p *profileKeys) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	var none credentials.Value
	p.session = false
	config, shared := toolFiles()
	ofConfig, errConfig := readTools(config, ini.LoadOptions{})
	ofShared, errShared := readTools(shared, ini.LoadOptions{})
	if err := errors.Join(errConfig, errShared); err != nil {
		return none, err
	}
	in, beside := profileIn(ofConfig, p.name), sectionOf(ofShared, p.name)
	value := func(name string) string { return cmp.Or(beside.Key(name).String(), in.Key(name).String()) }
	// A pair of keys goes together: half a one in the second file is not completed from the first.
	id, secret := beside.Key("aws_access_key_id").String(), beside.Key("aws_secret_access_key").String()
	token := beside.Key("aws_session_token").String()
	if first, second := in.Key("aws_access_key_id").String(), in.Key("aws_secret_access_key").String(); (id == "" || secret == "") && first != "" && second != "" || id == "" && secret == "" {
		id, secret, token = first, second, in.Key("aws_session_token").String()
	}
	for _, name := range notFollowed {
		if value(name) != "" {
			return none, fmt.Errorf("it takes its rights from elsewhere (%s), which is not followed: put credential_process = aws configure export-credentials --profile NAME into the profile that you name", name)
		}
	}
	switch {
	case id != "" && secret != "":
		return credentials.Value{AccessKeyID: id, SecretAccessKey: secret, SessionToken: token, SignerType: credentials.SignatureV4}, nil
	case id != "" || secret != "":
		return none, errors.New("aws_access_key_id and aws_secret_access_key go together, and it has one of them")
	case cmp.Or(value("sso_session"), value("sso_start_url"), value("sso_account_id"), value("sso_region"), value("sso_role_name")) != "":
		p.library.Profile, p.session = p.name, true
		return p.library.RetrieveWithCredContext(cc)
	case value("credential_process") != "":
		p.library.Profile, p.session = p.name, true
		found, err := p.library.RetrieveWithCredContext(cc)
		if err == nil && found.Expiration.IsZero() {
			p.library.SetExpiration(time.Now().Add(24*time.Hour), 0) // keys that do not end need not be asked for at every request
		}
		return found, processFailure(err)
	}
	return none, errNoKeys
}

// processFailure tells why a credential_process has given no keys, without what it has printed.
func processFailure(err error) error {
	if err == nil {
		return nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("its credential_process has failed: %v", exit.ProcessState)
	}
	if start, ok := errors.AsType[*exec.Error](err); ok {
		return fmt.Errorf("its credential_process cannot be run: %w", start.Err)
	}
	return errors.New("its credential_process cannot be run, or prints no credentials")
}
