package parser_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bulkscan/bulkscan/parser"
)

// The code of docs/parser.md.

var client = &http.Client{
	Timeout: 30 * time.Second,
	CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) > 5 {
			return http.ErrUseLastResponse // a 3xx, for which Parse allows everything
		}
		return nil
	},
}

// fetchRobots asks a site (`https://example.com`) for its robots.txt.
func fetchRobots(ctx context.Context, site string) *parser.Robots {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, site+"/robots.txt", nil)
	if err != nil {
		return parser.Parse(0, nil)
	}
	req.Header.Set("User-Agent", "ExampleBot/1.0 (+https://example.com/bot)")
	resp, err := client.Do(req)
	if err != nil {
		return parser.Parse(0, nil) // unreachable: nothing may be fetched for now
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, parser.MaxBody+1))
	if err != nil {
		return parser.Parse(0, nil)
	}
	return parser.Parse(resp.StatusCode, body)
}

// Fetching and asking, as docs/parser.md explains it.
func Example_crawler() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.Path) < len("/robots.txt")+5 {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
			return
		}
		fmt.Fprint(w, "User-agent: ExampleBot\nDisallow: /private/\n")
	}))
	site := server.URL
	robots := fetchRobots(context.Background(), site)
	fmt.Println(robots.Access(), robots.Allows("ExampleBot", site+"/private/"))

	server.Close()
	robots = fetchRobots(context.Background(), site)
	fmt.Println(robots.Access(), robots.Allows("ExampleBot", site+"/"))
	// Output:
	// conditional false
	// full_disallow false
}

// TestSixthRedirect checks that a sixth redirect is not followed.
func TestSixthRedirect(t *testing.T) {
	hops := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hops++
		http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
	}))
	defer server.Close()
	if robots := fetchRobots(t.Context(), server.URL); robots.Access() != parser.AccessFullAllow || hops != 6 {
		t.Errorf("%v after %d requests", robots.Access(), hops)
	}
}

// TestCrawlerPage checks that the Go code of docs/parser.md is code of this file.
func TestCrawlerPage(t *testing.T) {
	page, err := os.ReadFile("../docs/parser.md")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.ReadFile("example_crawler_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Error("no code")
	}
	for _, block := range blocks {
		if !strings.Contains(string(here), string(block[1])) {
			t.Errorf("this is not in example_crawler_test.go:\n%s", block[1])
		}
	}
}
