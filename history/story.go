package history

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/bulkscan/bulkscan/audit/tokens"
	"github.com/bulkscan/bulkscan/store"
)

// Story contains the ledger's entries of one site. Programs rely on its JSON; docs/FIELDS.md describes each field.
type Story struct {
	Host      string `json:"host" about:"as in sites"`
	Port      int32  `json:"port" about:"as in sites"`
	Requested string `json:"requested" about:"as in sites; auto for captures of archives"`
	Token     string `json:"token,omitempty" about:"--token, as the registry spells it"`
	Episodes  []Told `json:"episodes" about:"by date"`
	Gaps      []Gap  `json:"gaps" about:"by date"`
}

// Told is an episode with its policy.
type Told struct {
	Episode
	What   Policy   `json:"policy" about:"policy of the episode"`
	Change *Change  `json:"change,omitempty" about:"the file, compared with that of the episode before; left out with --token, and unless both have rules"`
	Token  *Treated `json:"token,omitempty" about:"how the episode treats the token"`
}

// Asked says what a story adds to episodes and gaps: how the episodes treat a token, or what changed in the files
// between them.
type Asked struct {
	Token    string // as the registry spells it, or empty
	Registry *tokens.Registry
}

// Stories returns the sites with a host, ordered by port and requested scheme. A site that was never observed is not
// among them. It reads the complete ledger, and for some nights the robots.txt files of the sites.
func Stories(ctx context.Context, st store.Store, host string, asked Asked) ([]Story, error) {
	l, err := ReadLedger(ctx, st)
	if err != nil {
		return nil, err
	}
	sites, wanted := map[int64]*Story{}, map[int64]Policy{}
	err = everyRow(ctx, st, l, History, func(e *Episode) {
		if e.Host != host {
			return
		}
		if sites[e.Site] == nil {
			sites[e.Site] = &Story{Host: e.Host, Port: e.Port, Requested: e.Requested, Token: asked.Token, Gaps: []Gap{}}
		}
		sites[e.Site].Episodes = append(sites[e.Site].Episodes, Told{Episode: *e})
		wanted[e.Policy] = Policy{}
	})
	if err != nil || len(sites) == 0 {
		return nil, err
	}
	err = everyRow(ctx, st, l, Gaps, func(g *Gap) {
		if s := sites[g.Site]; s != nil {
			s.Gaps = append(s.Gaps, *g)
		}
	})
	if err != nil {
		return nil, err
	}
	err = everyRow(ctx, st, l, Policies, func(p *Policy) {
		if _, ok := wanted[p.ID]; ok {
			wanted[p.ID] = *p
		}
	})
	if err != nil {
		return nil, err
	}
	var stories []Story
	p, err := pastOf(ctx, st)
	if err != nil {
		return nil, err
	}
	stored := &storedFiles{ctx: ctx, store: st, scans: l.Scans, past: p}
	for _, s := range sites {
		for i := range s.Episodes {
			s.Episodes[i].What = wanted[s.Episodes[i].Policy]
		}
		slices.SortFunc(s.Episodes, func(a, b Told) int { return cmp.Compare(a.ValidFrom, b.ValidFrom) })
		slices.SortFunc(s.Gaps, func(a, b Gap) int { return cmp.Compare(a.First, b.First) })
		if asked.Token != "" {
			err = stored.tellToken(s, asked)
		} else {
			err = stored.tellChanges(s)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the files of %s: %w", host, err)
		}
		stories = append(stories, *s)
	}
	slices.SortFunc(stories, func(a, b Story) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Requested, b.Requested))
	})
	return stories, nil
}

// everyRow calls do for each row of a table, closed or open.
func everyRow[T any](ctx context.Context, st store.Store, l *Ledger, tableName string, do func(*T)) error {
	for _, rows := range []iter.Seq2[*T, error]{rowsOf[T](ctx, st, l.Files, tableName, false), rowsOf[T](ctx, st, l.Files,
		tableName, true)} {
		for row, err := range rows {
			if err != nil {
				return err
			}
			do(row)
		}
	}
	return nil
}
