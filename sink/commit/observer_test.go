package commit

import "testing"

func TestProductOf(t *testing.T) {
	for header, want := range map[string]string{
		"bulkscan/1.2 (+https://example.org)": "bulkscan",
		"bulkscan":                            "bulkscan",
		"Mozilla/5.0 (compatible; OtherBot/2.1; +https://example.org)": "OtherBot",
		"Mozilla/5.0 (X11; Linux)":                                     "Mozilla",
		"Name(comment)":                                                "Name",
		"":                                                             "",
		"\x1b[31mx":                                                    "",
	} {
		if got := ProductOf(header); got != want {
			t.Errorf("%q: got %q, want %q", header, got, want)
		}
	}
}
