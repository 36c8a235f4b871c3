package s3

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"gopkg.in/ini.v1"
)

// keys finds the keys that sign requests: those of the Config, or else of the first source that exists:
//
//   - AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN;
//   - a role by web identity (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN), as in Kubernetes;
//   - the profile AWS_PROFILE, or else default, in AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE, or else ~/.aws: keys,
//     a session of `aws sso login`, or credential_process; keys in a file may be replaced while we run;
//   - the role of the container or of the machine, unless AWS_EC2_METADATA_DISABLED is true.
//
// A source that exists and fails is an error: the next one would be another identity. Without any source, requests are
// not signed, which is enough to read a public bucket. Once a source has given keys, only that source is asked for new
// ones, so a Store never changes its identity.
type keys struct {
	static  credentials.Value
	source  *keySource   // the one that had keys
	nothing atomic.Bool  // no source has keys
	spent   atomic.Int64 // nanoseconds that finding them took
}

func (k *keys) anonymous() bool { return k.nothing.Load() }

// keySource is one place that may have keys.
type keySource struct {
	what  string
	from  credentials.Provider
	named bool // the settings name it, so that having no keys is an error too
}

// errNoKeys is the error of a source without keys.
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
			// it had some, and may again
			return credentials.Value{}, fmt.Errorf("no new credentials from %s: %w", k.source.what, err)
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
		return false // keys that do not exist are looked for once, not for every request
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

// absent reports whether a failure means that the source does not exist on this machine.
func (s *keySource) absent(err error) bool {
	if s.named {
		return false
	}
	if _, ok := s.from.(*credentials.IAM); ok {
		return !errors.Is(err, errBusy) // no server at that address, or one that knows of no role
	}
	return errors.Is(err, errNoKeys)
}

// passing reports whether a retry may cure a failure of a source, as with failures on the way to a server.
func passing(err error) bool {
	_, network := errors.AsType[*url.Error](err)
	return network || errors.Is(err, io.ErrUnexpectedEOF)
}

// errBusy is the error of a server of roles that cannot answer now.
var errBusy = errors.New("its server is busy")

// roleTransport returns errBusy if a server answers that it is busy: the library's error would have only the text of
// the answer.
type roleTransport struct{ http.RoundTripper }

func (t roleTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if err == nil && (answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests) {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%w (status %d)", errBusy, answer.StatusCode)
	}
	return answer, err
}

// keySources returns the sources to try, in order.
func keySources() []keySource {
	set := func(name string) bool { return os.Getenv(name) != "" }
	identity := set("AWS_WEB_IDENTITY_TOKEN_FILE")
	container := set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") || set("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	// The server of a machine's role is on the same machine, or close. A laptop has no such server and should not wait for
	// one.
	role := &credentials.IAM{Client: &http.Client{Timeout: 2 * time.Second,
		Transport: roleTransport{http.DefaultTransport}}}
	if identity || container {
		role.Client.Timeout = 30 * time.Second
	}
	sources := []keySource{{what: "the environment", from: &environmentKeys{}}}
	if identity {
		sources = append(sources, keySource{"the web identity in AWS_WEB_IDENTITY_TOKEN_FILE", webIdentity{role}, true})
	}
	name := profileName()
	sources = append(sources, keySource{fmt.Sprintf("the profile %s (AWS_PROFILE)", clip(name)),
		&profileKeys{credentials.FileAWSCredentials{Profile: name}}, set("AWS_PROFILE")})
	switch {
	case identity: // role, then, asks for the web identity only
	case container:
		sources = append(sources, keySource{"the container's role (AWS_CONTAINER_CREDENTIALS_…)", role, true})
	case !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true"):
		sources = append(sources, keySource{what: "the machine's role", from: role})
	}
	return sources
}

// webIdentity is a role by web identity, which two variables name together. The library would send a request although
// one of them is missing.
type webIdentity struct{ *credentials.IAM }

// RetrieveWithCredContext implements credentials.Provider.
func (w webIdentity) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	if os.Getenv("AWS_ROLE_ARN") == "" {
		return credentials.Value{}, errors.New("AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not")
	}
	return w.IAM.RetrieveWithCredContext(cc)
}

// environmentKeys are the keys in the variables of the process, which never change.
type environmentKeys struct{ credentials.EnvAWS }

// RetrieveWithCredContext implements credentials.Provider. The library leaves requests unsigned where one of two
// variables is missing.
func (e *environmentKeys) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	value, err := e.EnvAWS.RetrieveWithCredContext(cc)
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

// notFollowed are settings of a profile by which the AWS tools get keys and which the library ignores.
var notFollowed = []string{"role_arn", "source_profile", "credential_source", "web_identity_token_file",
	"login_session"}

// profileKeys are those of a profile, as the library reads it from the files of the AWS tools. The files are read here
// first, for three reasons: the library's errors quote their text; a profile without keys must differ from one that
// fails; and a profile that names another source of keys must not sign with keys found elsewhere.
type profileKeys struct{ credentials.FileAWSCredentials }

// RetrieveWithCredContext implements credentials.Provider.
func (p *profileKeys) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	var none credentials.Value
	config, shared := toolFiles()
	ofConfig, errConfig := readTools(config, ini.LoadOptions{})
	ofShared, errShared := readTools(shared, ini.LoadOptions{})
	if err := errors.Join(errConfig, errShared); err != nil {
		return none, err
	}
	inConfig, inShared := profileIn(ofConfig, p.Profile), sectionOf(ofShared, p.Profile)
	if inConfig.Name() == noSection && inShared.Name() == noSection {
		return none, errNoKeys
	}
	has := func(name string) bool { return inShared.Key(name).String() != "" || inConfig.Key(name).String() != "" }
	for _, name := range notFollowed {
		if has(name) {
			return none,
				fmt.Errorf(
					"it takes its rights from elsewhere (%s), which is not followed: put credential_process = aws configure export-credentials --profile NAME into the profile that you name", name)
		}
	}
	value, err := p.FileAWSCredentials.RetrieveWithCredContext(cc)
	switch {
	case err != nil && has("credential_process") && !has("sso_role_name"):
		return none, fmt.Errorf("its credential_process: %w", err)
	case err != nil:
		return none, err
	case value.AccessKeyID == "" && (has("aws_access_key_id") || has("aws_secret_access_key")):
		// the library would drop the only one
		return none, errors.New("it has only one of aws_access_key_id and aws_secret_access_key")
	case value.Expiration.IsZero() && !has("aws_access_key_id"):
		// Keys of a credential_process that do not end. The library would run it for every request.
		p.SetExpiration(time.Now().Add(24*time.Hour), 0)
	}
	return value, nil
}
