package s3

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// TestKeysRenewed shows that expired keys are renewed from the same source, and that a failure there is retried: a
// process that has signed requests never continues unsigned or as another identity.
func TestKeysRenewed(t *testing.T) {
	busy := false
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if busy {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"AccessKeyId": "ROLEKEY", "SecretAccessKey": "hush", "Expiration": %q}`,
			time.Now().Add(-time.Second).UTC().Format(time.RFC3339))
	}))
	defer role.Close()
	environment(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI="+role.URL)
	k := &keys{}
	f := func(when string, down bool, want string) {
		t.Helper()
		busy = down
		value, err := k.RetrieveWithCredContext(nil)
		if value.AccessKeyID != want || (err != nil) != down || k.anonymous() {
			t.Errorf("%s: key %q, want %q; anonymous %v, %v", when, value.AccessKeyID, want, k.anonymous(), err)
		}
		if err != nil && (!transient(err) || !strings.Contains(err.Error(), "credentials from the container's role")) {
			t.Errorf("%s: an error that is not tried again, or does not say where: %v", when, err)
		}
		if !k.IsExpired() {
			t.Errorf("%s: they have ended, and are not renewed", when)
		}
	}
	f("before there were any", true, "")
	f("the first", false, "ROLEKEY")
	f("renewed, failing", true, "")
	t.Setenv("AWS_ACCESS_KEY_ID", "ANOTHER")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hush")
	f("still failing, with others at hand", true, "")
	f("renewed", false, "ROLEKEY")
}

// TestKeysReadAgain shows that keys in a file are read for every request, since a tool may replace them, and that a
// credential_process whose keys do not end runs once.
func TestKeysReadAgain(t *testing.T) {
	f := func(again bool, text string) {
		t.Helper()
		environment(t, "AWS_CONFIG_FILE="+file(t, "[default]\n"+text))
		k := &keys{}
		value, err := k.RetrieveWithCredContext(nil)
		if value.AccessKeyID != "A" || k.IsExpired() != again {
			t.Errorf("%q: key %q, read again %v: %v", text, value.AccessKeyID, k.IsExpired(), err)
		}
	}
	printed := func(text string) string {
		return "credential_process = /bin/cat " + file(t, `{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "hush"`+text+
			`}`)
	}
	f(true, "aws_access_key_id = A\naws_secret_access_key = hush")
	f(false, printed(""))
	f(false, printed(`, "Expiration": "2100-01-01T00:00:00Z"`))
	f(true, printed(`, "Expiration": "2001-01-01T00:00:00Z"`))
}

// TestMachineRole shows whether an answer of the machine's role server means that there is no role, or that a retry may
// help.
func TestMachineRole(t *testing.T) {
	f := func(status int, absent bool) {
		t.Helper()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }))
		defer server.Close()
		environment(t)
		s := keySource{from: &credentials.IAM{Endpoint: server.URL,
			Client: &http.Client{Transport: roleTransport{http.DefaultTransport}}}}
		_, err := s.keys(nil)
		if err == nil || s.absent(err) != absent || !absent && !passing(err) {
			t.Errorf("status %d: absent %v, want %v: %v", status, s.absent(err), absent, err)
		}
	}
	f(http.StatusNotFound, true)
	f(http.StatusForbidden, true)
	f(http.StatusTooManyRequests, false)
	f(http.StatusInternalServerError, false)
	f(http.StatusServiceUnavailable, false)
	nobody := keySource{from: &credentials.IAM{Endpoint: "http://127.0.0.1:1", Client: http.DefaultClient}}
	if _, err := nobody.keys(nil); err == nil || !nobody.absent(err) {
		t.Errorf("no server: %v", err)
	}
}

// TestTimeForKeysDoesNotCount shows that the time for finding credentials does not count against the server's patience.
func TestTimeForKeysDoesNotCount(t *testing.T) {
	s, err := New(Config{Bucket: "dataset", Endpoint: "http://127.0.0.1:1", AccessKey: "a", SecretKey: "b"})
	if err != nil {
		t.Fatal(err)
	}
	r := s.newRetries()
	s.keys.spent.Add(int64(time.Hour)) // a user entered the second factor
	if elapsed := r.elapsed(); elapsed > 0 {
		t.Errorf("%v have passed", elapsed)
	}
	r.since = time.Now().Add(-time.Hour - 9*time.Second)
	if err := r.again(t.Context(), errors.New("reset")); err != nil {
		t.Errorf("given up in the first ten seconds: %v", err)
	}
}
