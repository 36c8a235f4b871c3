package nightly

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bulkscan/bulkscan/survey/diff"
)

// Webhook tells a URL how a night ended, as JSON in the form of Slack: {"text": …}.
type Webhook struct {
	URL    string // may contain a secret, so no message names it
	Client *http.Client
	Log    *slog.Logger
}

const (
	tellTime    = 10 * time.Second
	tellRetries = 3
	maxOut      = 5 // checks that a message names
)

// tellPause is the wait before the first retry, doubled for the next.
const tellPause = 2 * time.Second

// Tell posts the message, with a few retries. Its failure does not fail the night.
func (w *Webhook) Tell(ctx context.Context, n *Night) {
	body, err := json.Marshal(map[string]string{"text": n.Message()})
	if err == nil {
		err = repeat(ctx, tellRetries, tellPause, func(time.Duration) (bool, error) { return w.post(ctx, body) })
	}
	if err != nil {
		w.Log.Warn("the webhook was not told of the night", "date", n.Date, "error", err)
	}
}

// repeat calls try until it succeeds or says that a retry is useless, with at most so many retries and with pauses that
// double. try gets the pause that would follow, 0 for none.
func repeat(ctx context.Context, retries int, pause time.Duration,
	try func(pause time.Duration) (again bool, err error)) error {
	for ; ; retries-- {
		if retries == 0 {
			pause = 0
		}
		again, err := try(pause)
		if err == nil || !again || pause == 0 {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		pause *= 2
	}
}

// send sends a request by a client, or by http.DefaultClient. Its error does not name the URL, which may contain a
// secret.
func send(client *http.Client, request *http.Request) (*http.Response, error) {
	response, err := cmp.Or(client, http.DefaultClient).Do(request)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return response, err
}

// post posts a message. again reports whether a retry may succeed.
func (w *Webhook) post(ctx context.Context, body []byte) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("the URL is not valid")
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := send(w.Client, request)
	if err != nil {
		return true, err
	}
	_, _ = io.CopyN(io.Discard, response.Body, 4096)
	_ = response.Body.Close()
	if response.StatusCode/100 == 2 {
		return false, nil
	}
	return response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests,
		fmt.Errorf("status %d", response.StatusCode)
}

// Message says how a night ended and what has changed, in less than a screen.
func (n *Night) Message() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bulkscan: the night of %s is %s", n.Date, n.State)
	if n.EndedAt != nil {
		fmt.Fprintf(&b, " after %s", n.EndedAt.Sub(n.StartedAt))
	}
	if text := cmp.Or(n.Error, n.PruneError); text != "" {
		fmt.Fprintf(&b, ": %s", text)
	}
	if f := n.Figures; f != nil {
		fmt.Fprintf(&b, "\n%d sites: %d with rules, of which %d block a crawler; %d of which nothing was learned",
			f.Sites, f.Rules, f.Blocked, f.Silent())
	}
	for i, c := range n.Out {
		if i == maxOut {
			fmt.Fprintf(&b, "\n… and %d more", len(n.Out)-maxOut)
			break
		}
		fmt.Fprintf(&b, "\n%s", c)
	}
	if n.State == Held {
		fmt.Fprintf(&b, "\nbulkscan nightly --release %s publishes it; --discard %[1]s does not", n.Date)
	}
	if c := n.Changes; c != nil {
		fmt.Fprintf(&b, "\nSince %s: %d sites began or ceased to block a crawler; %d sites appeared, %d vanished", c.From,
			c.Changed, c.Appeared, c.Vanished)
		for _, t := range c.Tokens {
			fmt.Fprintf(&b, "\n%s", tokenLine(&t))
		}
	}
	return b.String()
}

func tokenLine(t *diff.Token) string {
	return fmt.Sprintf("%s: %d began, %d ceased (now %.2f %% of sites with rules in both)", t.Token, t.Began, t.Ceased,
		100*t.ShareAfter)
}
