package terminal

import (
	"io"
	"strings"

	"github.com/bulkscan/bulkscan/audit/tokens"
)

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// Tokens shows a row for each token. Nothing is clipped: the list is also read by grep and awk.
func Tokens(w io.Writer, list []tokens.Token, color Color) error {
	p := newPage(w, color)
	t := &table{whole: true}
	var titles []piece
	for _, title := range []string{"TOKEN", "CATEGORY", "PURPOSE", "OPERATOR", "FOLLOWS", "HEEDS *"} {
		titles = append(titles, styled(bold, "%s", title))
	}
	t.add(titles...)
	for i := range list {
		tok := &list[i]
		t.add(text(tok.Name), text(tok.Category), text(tok.Purpose), text(tok.Operator),
			text(strings.Join(tok.Fallback, " ")), text(yesNo(tok.HeedsStar)))
	}
	p.table(t)
	return p.end()
}

// DescribeTokens shows all that is known of each token.
func DescribeTokens(w io.Writer, list []tokens.Token, color Color) error {
	p := newPage(w, color)
	for i := range list {
		if i > 0 {
			p.line()
		}
		p.line(styled(bold, "%s", list[i].Name))
		t := &table{indent: 2, wrap: true}
		for _, row := range tokenFacts(&list[i]) {
			if row[1] != "" {
				t.add(styled(dim, "%s", row[0]), text(row[1]))
			}
		}
		p.table(t)
	}
	return p.end()
}

func tokenFacts(t *tokens.Token) [][2]string {
	fits := "yes"
	switch product := t.InFiles(); {
	case product == "":
		fits = "no: by RFC 9309 no group can name it, only a lenient reading finds it"
	case product != t.Name:
		fits = "no: a group names it " + product
	}
	return [][2]string{
		{"operator", t.Operator},
		{"category", t.Category},
		{"purpose", t.Purpose},
		{"aliases", strings.Join(t.Aliases, ", ")},
		{"product token", fits},
		{"follows", strings.Join(t.Fallback, ", ")},
		{"heeds *", yesNo(t.HeedsStar)},
		{"source", t.Source},
		{"source kind", t.SourceKind},
		{"checked", t.Checked},
	}
}
