package s3

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParsePlace(t *testing.T) {
	f := func(place, bucket, prefix, problem string) {
		t.Helper()
		b, p, err := ParsePlace(place)
		switch {
		case problem == "" && err != nil, problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%s: %v, want %q", place, err, problem)
		case err == nil && (b != bucket || p != prefix):
			t.Errorf("%s: %q, %q", place, b, p)
		case err != nil && strings.Contains(err.Error(), "hush"):
			t.Errorf("%s: the error tells the secret: %v", place, err)
		}
	}
	f("s3://bucket", "bucket", "", "")
	f("s3://bucket/", "bucket", "", "")
	f("s3://bucket/a", "bucket", "a", "")
	f("s3://bucket/a/b=c/", "bucket", "a/b=c", "")
	f("s3://my.bucket-1/a", "my.bucket-1", "a", "")
	f("s3://", "", "", "write s3://BUCKET/PREFIX")
	f("s3:///a", "", "", "without a bucket")
	f("bucket/a", "", "", "is written s3://BUCKET/PREFIX")
	f("S3://bucket", "", "", "is written s3://BUCKET/PREFIX")
	f("s3://Bucket/a", "", "", "bucket \"Bucket\"")
	f("s3://ab/a", "", "", "bucket \"ab\"")
	f("s3://bucket--usw2-az1--x-s3/a", "", "", "directory bucket")
	f("s3://bucket//a", "", "", "prefix in the bucket")
	f("s3://bucket/a//", "", "", "prefix in the bucket")
	f("s3://bucket/../a", "", "", "prefix in the bucket")
	f("s3://bucket/.a", "", "", "prefix in the bucket")
	f("s3://bucket/ä", "", "", "prefix in the bucket")
	f("s3://localhost:9000/bucket/a", "", "", "set AWS_ENDPOINT_URL_S3")
	f("s3://bucket/a?region=x", "", "", "AWS_REGION")
	f("s3://key:hush@bucket/a", "", "", "do not belong there")
}

// environment sets variables and unsets all others that the AWS tools read.
func environment(t *testing.T, variables ...string) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "BULKSCAN_") {
			t.Setenv(name, "") // restores the old value after the test
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("HOME", t.TempDir())
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
}

// file writes a file and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const toolConfig = `
[default]
region = eu-west-1

[profile minio]
region = somewhere
endpoint_url = http://minio.test:9000
s3 =
    addressing_style = path
    max_concurrent_requests = 2
ca_bundle = /ca.pem

[profile both]
endpoint_url = http://other.test
services = mine
aws_access_key_id = CONFIGKEY
aws_secret_access_key = hush

[services mine]
dynamodb =
    endpoint_url = http://dynamo.test
s3 =
    endpoint_url = http://objects.test:9000/

[profile ignore]
endpoint_url = http://other.test
ignore_configured_endpoint_urls = TRUE

[profile wrong]
endpoint_url = other.test

[profile bad]
s3 =
    addressing_style = sideways
`

func TestFromEnvironment(t *testing.T) {
	config := "AWS_CONFIG_FILE=" + file(t, toolConfig)
	f := func(want Config, problem string, variables ...string) {
		t.Helper()
		environment(t, variables...)
		got, err := FromEnvironment("s3://bucket/a")
		want.Bucket, want.Prefix = "bucket", "a"
		switch {
		case problem == "" && err != nil, problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%q: %v, want %q", variables, err, problem)
		case err == nil && !reflect.DeepEqual(got, want):
			t.Errorf("%q: %+v, want %+v", variables, got, want)
		case err != nil && strings.Contains(err.Error(), "hush"):
			t.Errorf("%q: the error tells the secret: %v", variables, err)
		}
	}
	f(Config{}, "")
	f(Config{Region: "a"}, "", "AWS_REGION=a", "AWS_DEFAULT_REGION=b", config)
	f(Config{Region: "b"}, "", "AWS_DEFAULT_REGION=b", config)
	f(Config{Region: "eu-west-1"}, "", config)
	f(Config{Region: "eu-west-1"}, "", config, "AWS_PROFILE=default")
	f(Config{Region: "somewhere", Endpoint: "http://minio.test:9000", Style: Path, CAFile: "/ca.pem"}, "", config,
		"AWS_PROFILE=minio")
	f(Config{Region: "somewhere", Endpoint: "https://a.test", Style: Virtual, CAFile: "/b.pem"}, "", config,
		"AWS_PROFILE=minio",
		"AWS_ENDPOINT_URL=https://a.test/", "BULKSCAN_S3_STYLE=virtual", "AWS_CA_BUNDLE=/b.pem")
	f(Config{Endpoint: "https://b.test"}, "", "AWS_ENDPOINT_URL=https://a.test", "AWS_ENDPOINT_URL_S3=https://b.test")
	f(Config{Endpoint: "http://objects.test:9000"}, "", config, "AWS_PROFILE=both")
	f(Config{}, "", config, "AWS_PROFILE=both", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true")
	f(Config{}, "", "AWS_ENDPOINT_URL=https://a.test", "AWS_ENDPOINT_URL_S3=https://b.test",
		"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=True")
	f(Config{}, "", config, "AWS_PROFILE=ignore")
	f(Config{Endpoint: "https://a.test"}, "", config, "AWS_PROFILE=ignore", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=false",
		"AWS_ENDPOINT_URL=https://a.test")
	f(Config{}, `the profile "nobody" (AWS_PROFILE) is neither in`, config, "AWS_PROFILE=nobody", "AWS_ACCESS_KEY_ID=A",
		"AWS_SECRET_ACCESS_KEY=hush")
	f(Config{}, "", config, "AWS_PROFILE=other", "AWS_SHARED_CREDENTIALS_FILE="+
		file(t, "[other]\naws_access_key_id = A\n"))
	f(Config{}, `"sideways" is none of auto, path, virtual`, config, "AWS_PROFILE=bad")
	f(Config{Lease: 90e9}, "", "BULKSCAN_S3_LEASE=90s")
	f(Config{}, `"1ms" is not a duration`, "BULKSCAN_S3_LEASE=1ms")
	f(Config{}, `"soon" is not a duration`, "BULKSCAN_S3_LEASE=soon")
	f(Config{}, "want https://HOST:PORT", "AWS_ENDPOINT_URL_S3=minio.test:9000")
	f(Config{}, "want https://HOST:PORT", "AWS_ENDPOINT_URL_S3=ftp://minio.test")
	f(Config{}, "nothing after it", "AWS_ENDPOINT_URL_S3=https://minio.test/bucket")
	f(Config{}, "without user and password", "AWS_ENDPOINT_URL_S3=https://user:hush@minio.test")
	f(Config{}, "the server (endpoint_url of the profile)", config, "AWS_PROFILE=wrong")
	f(Config{}, "the server (AWS_ENDPOINT_URL)", "AWS_ENDPOINT_URL=minio.test")
	f(Config{}, "cannot read a file of the AWS tools", "AWS_CONFIG_FILE="+t.TempDir())
	f(Config{}, "file cannot be read as an ini file", "AWS_CONFIG_FILE="+file(t, "[hush"))
}

// TestKeys shows which keys sign, in which order their sources are tried, and that a named source excludes all others.
func TestKeys(t *testing.T) {
	config := "AWS_CONFIG_FILE=" + file(t, toolConfig)
	shared := "AWS_SHARED_CREDENTIALS_FILE=" +
		file(t,
			"[default]\naws_access_key_id = FILEKEY\naws_secret_access_key = hush\n\n[other]\naws_access_key_id = OTHERKEY\naws_secret_access_key = hush\naws_session_token = TOKEN\n")
	process := "AWS_CONFIG_FILE=" + file(t, "[default]\ncredential_process = "+file(t, "")+" x\n")
	const noRole = "AWS_EC2_METADATA_DISABLED=true"
	f := func(want, problem string, variables ...string) {
		t.Helper()
		environment(t, append(variables, noRole)...)
		k := &keys{}
		value, err := k.RetrieveWithCredContext(nil)
		got := strings.TrimSpace(value.AccessKeyID + " " + value.SessionToken)
		switch {
		case problem == "" && err != nil, problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%q: %v, want %q", variables, err, problem)
		case err == nil && got != want:
			t.Errorf("%q: key %q, want %q", variables, got, want)
		case err != nil && (transient(err) || strings.Contains(err.Error(), "hush")):
			t.Errorf("%q: an error that is tried again, or tells the secret: %v", variables, err)
		case err == nil && k.anonymous() != (want == ""):
			t.Errorf("%q: anonymous %v", variables, k.anonymous())
		case want == "" && err == nil && k.IsExpired():
			t.Errorf("%q: what is not there is looked for again and again", variables)
		}
	}
	f("", "")
	f("ENVKEY", "", "AWS_ACCESS_KEY_ID=ENVKEY", "AWS_SECRET_ACCESS_KEY=hush", shared, config)
	f("ENVKEY T", "", "AWS_ACCESS_KEY_ID=ENVKEY", "AWS_SECRET_ACCESS_KEY=hush", "AWS_SESSION_TOKEN=T")
	f("", "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not", "AWS_ACCESS_KEY_ID=ENVKEY", shared, config)
	f("", "AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not", "AWS_SECRET_ACCESS_KEY=hush", shared, config)
	f("FILEKEY", "", shared, config)
	f("OTHERKEY TOKEN", "", shared, config, "AWS_PROFILE=other")
	f("CONFIGKEY", "", config, "AWS_PROFILE=both")
	f("", "no credentials from the profile nobody (AWS_PROFILE)", shared, config, "AWS_PROFILE=nobody")
	f("", "it has no keys", shared, config, "AWS_PROFILE=minio")
	f("", "no credentials from the web identity", shared, "AWS_WEB_IDENTITY_TOKEN_FILE=/not/there", "AWS_ROLE_ARN=arn")
	f("", "no credentials from the container's role", "AWS_CONTAINER_CREDENTIALS_FULL_URI=http://192.0.2.1/")

	// The default profile may have no keys; but its settings count.
	profile := func(text string) string { return "AWS_CONFIG_FILE=" + file(t, "[default]\n"+text) }
	half := "AWS_SHARED_CREDENTIALS_FILE=" + file(t, "[default]\naws_secret_access_key = hush\n")
	f("", "", profile("region = eu-west-1"))
	f("", "its credential_process: fork/exec", process)
	f("", "its credential_process: exit status 3", profile("credential_process = /bin/sh -c exit${IFS}3"))
	f("", "its credential_process: invalid character", profile("credential_process = /bin/echo hush"))
	f("PROCESSKEY", "", profile("credential_process = /bin/cat "+
		file(t, `{"Version": 1, "AccessKeyId": "PROCESSKEY", "SecretAccessKey": "hush"}`)))
	const role = "role_arn = arn:aws:iam::1:role/x\n"
	const keyed = "\n[profile base]\naws_access_key_id = A\naws_secret_access_key = hush\n"
	f("", "it takes its rights from elsewhere (role_arn)", profile(role+"source_profile = base"+keyed))
	f("", "it takes its rights from elsewhere (role_arn)", "AWS_CONFIG_FILE="+file(t, "[profile x]\n"+role+
		"source_profile = base"+keyed), "AWS_PROFILE=x")
	f("", "it takes its rights from elsewhere (role_arn)", "AWS_SHARED_CREDENTIALS_FILE="+
		file(t, "[default]\n"+role+"source_profile = base\n"))
	f("", "it takes its rights from elsewhere (role_arn)",
		profile(role+"aws_access_key_id = A\naws_secret_access_key = hush"))
	f("", "it takes its rights from elsewhere (role_arn)", profile(role+"web_identity_token_file = /not/there"))
	f("", "it takes its rights from elsewhere (role_arn)", profile(role+"credential_source = Ec2InstanceMetadata"))
	f("", "it takes its rights from elsewhere (web_identity_token_file)", profile("web_identity_token_file = /not/there"))
	f("", "it takes its rights from elsewhere (source_profile)", profile("source_profile = base"+keyed))
	f("", "it takes its rights from elsewhere (credential_source)", profile("credential_source = Environment"))
	f("", "it takes its rights from elsewhere (login_session)", profile("login_session = arn:aws:iam::1:user/x"))
	f("BOTH", "", profile(role), "AWS_ACCESS_KEY_ID=BOTH", "AWS_SECRET_ACCESS_KEY=hush") // the environment comes first
	f("", "no credentials from the web identity", profile(role), "AWS_WEB_IDENTITY_TOKEN_FILE=/not/there")
	f("", "AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not", "AWS_WEB_IDENTITY_TOKEN_FILE="+file(t, "token"))
	f("", "SSO configuration but no sso_role_name", profile("sso_session = x"))
	f("", "aws sso login",
		profile("sso_start_url = https://x.test\nsso_region = eu-west-1\nsso_account_id = 1\nsso_role_name = r"))
	f("", "must both be set", profile("aws_access_key_id = A"))
	f("", "it has only one of", profile("region = eu-west-1"), half)
	f("", "must both be set", profile("aws_access_key_id = A"), half)
	f("A", "", profile("aws_access_key_id = A\naws_secret_access_key = hush"), half)

	// Errors never quote a file.
	f("", "file cannot be read as an ini file (line 3)", "AWS_SHARED_CREDENTIALS_FILE="+
		file(t, "[default]\naws_access_key_id = A\nhush\n"))
	f("", "file cannot be read as an ini file (line 2)", "AWS_SHARED_CREDENTIALS_FILE="+file(t, "[default]\n= hush\n"))
	f("", "file cannot be read as an ini file", "AWS_SHARED_CREDENTIALS_FILE="+
		file(t, "[default]\naws_secret_access_key = `hush\n"))
	f("", "file cannot be read as an ini file", profile("[hush\n"))
}

// TestConfig shows which settings are refused.
func TestConfig(t *testing.T) {
	f := func(c Config, problem string) {
		t.Helper()
		c.Bucket = "bucket"
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	f(Config{PartSize: minPartSize - 1}, "parts of 5242879 bytes")
	f(Config{Lease: 1}, "a lease of 1ns")
	f(Config{AccessKey: "a"}, "go together")
	f(Config{CAFile: "/not/there"}, "cannot read AWS_CA_BUNDLE")
	f(Config{CAFile: file(t, "no certificate")}, "no certificate in AWS_CA_BUNDLE")
}
