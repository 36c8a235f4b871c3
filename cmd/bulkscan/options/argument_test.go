package options

import (
	"os"
	"strings"
	"testing"
)

// TestSite shows which arguments that name no file are a site, and which are the mistyped name of a file. The
// folder has policy.md, example.com.txt, the folder saved, and the folder my.app.
func TestSite(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"policy.md", "example.com.txt"} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"saved", "my.app"} {
		if err := os.Mkdir(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	site := func(arg, want string) {
		t.Helper()
		if o, err := Site("", arg); err != nil || o.String() != want {
			t.Errorf("%q is %v, %v; want the site %s", arg, o, err, want)
		}
	}
	// A host needs a dot, a port or an address; localhost needs nothing.
	site("example.com", "example.com")
	site("example.com.", "example.com")
	site("www.example.co.uk", "www.example.co.uk")
	site("EXAMPLE.com", "example.com")
	site("müller.de", "xn--mller-kva.de")
	site("example.com/robots.txt", "example.com")
	site("example.com/", "example.com")
	site("example.com/a/b?c=robots.txt", "example.com")
	site("example.com?robots.txt", "example.com")
	site("//example.com/x", "example.com")
	site("example.com:8080/robots.txt", "example.com:8080")
	site("localhost", "localhost")
	site("localhost:8080", "localhost:8080")
	site("localhost/robots.txt", "localhost")
	site("intranet:80", "intranet:80")
	site("wiki.corp/robots.txt", "wiki.corp")
	site("192.0.2.7", "192.0.2.7")
	site("192.0.2.7/robots.txt", "192.0.2.7")
	site("[2001:db8::1]", "[2001:db8::1]")
	site("[2001:db8::1]:8080/robots.txt", "[2001:db8::1]:8080")
	// .md and others are domains, too. A name unlike robots.txt and unlike an existing file is a site.
	site("example.md", "example.md")
	site("point.md/page", "point.md")
	site("example.dev", "example.dev")
	site("www.robots.md", "www.robots.md")
	site("robotics.md", "robotics.md")
	site("text.npr.org", "text.npr.org")
	site("json.org", "json.org")
	// With a scheme everything is a site.
	site("https://robots.md", "https://robots.md")
	site("http://robots.txt/robots.txt", "http://robots.txt")
	site("https://intranet", "https://intranet")
	site("https://polcy.md", "https://polcy.md")

	file := func(arg string, says ...string) {
		t.Helper()
		for _, option := range []string{"", "--robots "} {
			o, err := Site(option, arg)
			if err == nil {
				t.Errorf("%q is %v; want an error", arg, o)
				return
			}
			for _, text := range append(says, option) {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q: %v; want %q", arg, err, text)
				}
			}
		}
	}
	both := func(arg string) {
		t.Helper()
		file(arg, "no such file", "if a site was meant, write https://"+strings.TrimLeft(arg, "/"))
	}
	for _, arg := range []string{
		"robots.md", "robots.txt", "robot.txt", "Robots.TXT", "robots.txt.bak", "robots.txt.old", "robots.dev", "robots.com",
		"robots.example.com", "robots.new",
		"robot.md", "robts.md", "rbots.app", "roobts.md", "robotx.md", // one slip from robots
		"robots", "LICENSE", "intranet", // one word
		// endings
		"site.txt", "sites.csv", "top-1m.csv.zip", "list.csv.gz", "capture.warc.gz", "out.jsonl", "page.html", "nightly.toml",
		"dir/robots.txt", "dir/sub/robots", "saved/robot.txt", "saved/example.com", "my.app/robots.txt",
		"robots.d/example.com", "robots.txt/", "//robots.txt",
		"polcy.md", "POLICY.MD", "policy.mdx", // near an existing file
		"1.2", "2130706433", "0x7f.1", // addresses that are not in full
	} {
		both(arg)
	}
	file("polcy.md", "did you mean policy.md?")
	for _, arg := range []string{"./x", "./robots.md", "../robots.txt", "/etc/robots.txt", "/robots.txt", "~/robots.txt",
		"~me/x.md", `C:\robots.txt`, `dir\robots.md`, "./example.com"} {
		file(arg, "no such file")
		if _, err := Site("", arg); strings.Contains(err.Error(), "https://") {
			t.Errorf("%q cannot be a site: %v", arg, err)
		}
	}
	for _, arg := range []string{"", "no such thing", "a..b", "example.com:99999", "me@example.com"} {
		file(arg, "is neither a file nor a site")
	}
	file("gopher://example.com", "scheme is not http, https or ftp", "a file is named by its path")
	file("https://", "not a host name")
	file("example.com.tx", "did you mean example.com.txt?")
}

// TestFileEndings checks that no site of the public web is taken for a file by its ending, except sites below zip.
func TestFileEndings(t *testing.T) {
	for _, ending := range fileEndings {
		if IsSite("example."+ending) != (ending == "zip") {
			t.Errorf("example.%s is a site: %v", ending, ending != "zip")
		}
	}
}
