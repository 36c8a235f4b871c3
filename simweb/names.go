package simweb

import (
	"iter"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// The words of made-up host names. All concatenations of one of each list are distinct (TestNames).
var (
	nameFirst = strings.Fields(
		"amber autumn bamboo bright cedar city clear cloud copper coral crystal daily delta early eastern ember falcon " +
			"forest fresh garden gentle global golden grand granite green harbor hidden honey indigo iron island ivory jolly juniper kind lake " +
			"lemon light lively lunar maple marble meadow metro mint modern morning mountain nimble noble north ocean olive orange orchid pacific " +
			"paper pearl pepper pine planet plum polar prime quick quiet rapid raven red river royal rustic sage sandy scarlet silver simple " +
			"smart snow solar solid spring stone summer sunny swift timber tiny total tulip urban valley velvet violet vivid wander warm west " +
			"wild willow winter wise wonder young zebra zen")
	nameSecond = strings.Fields(
		"academy agency archive atlas audio bakery bank basket beacon bikes books bridge buzz cafe camera canvas care " +
			"chef clinic club coach codes coffee craft dance data deals dental design diary digest digital doctor energy events express fashion " +
			"films finance fitness flowers foods forum foto games gazette guide health herald hotel house imports insider journal kitchen labs " +
			"legal library living loans magazine market media models motors museum music network notes office outlet paints partners pets photos " +
			"pixel portal post press printing radio realty recipes records report review school science shop sport store studio supply systems " +
			"tech theater times tools tours toys trade travel tribune tutor ventures video vision voice watch weather weekly wiki wines works yoga")
	// Endings with their weights, in about thousandths.
	nameEndings = []struct {
		ending string
		weight int
	}{
		{"com", 470}, {"org", 70}, {"net", 50}, {"de", 45}, {"co.uk", 35}, {"ru", 35}, {"fr", 22}, {"nl", 20}, {"it", 18},
		{"com.br", 18},
		{"pl", 16}, {"co.jp", 16}, {"jp", 10}, {"com.au", 14}, {"io", 14}, {"in", 12}, {"es", 12}, {"ca", 12}, {"ch", 8},
		{"se", 8}, {"cz", 8},
		{"at", 6}, {"be", 6}, {"eu", 6}, {"edu", 8}, {"gov", 4}, {"ac.uk", 3}, {"info", 10}, {"xyz", 8}, {"shop", 6},
		{"app", 5}, {"dev", 5},
		{"co.za", 4}, {"co.kr", 4}, {"com.tr", 4}, {"gr", 3}, {"xn--p1ai", 3}, {"xn--80asehdb", 2}, {"github.io", 4},
	}
	nameIDN = strings.Fields("bücher müller straße café niño crème ångström żółty čaj 東京 中文 новости пример 한국 ελλάδα שלום")
	nameSub = strings.Fields(
		"www www www m blog shop api news mail cdn static support docs forum de en images login app test")
)

// Names yields n distinct made-up host names with ranks from 1. Some share a registrable domain; endings have one or
// two labels; internationalised names are in ASCII form. Another seed yields other names.
func (w *Web) Names(n int) iter.Seq2[int, string] { return Names(w.cfg.Seed, n) }

// Names is Web.Names without a running web.
func Names(seed uint64, n int) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		rank := 0
		for i := uint64(0); ; i++ {
			domain := domainName(seed, i)
			h := mix(mix(seed+3) + i)
			hosts := 1
			if h%8 == 0 {
				hosts += 1 + int(h>>8%4)
			}
			bare := h>>16%4 != 0
			// Subdomains are taken in the list's order from a drawn start, so that they differ.
			distinct := nameSub[2:]
			start := int(h >> 24 % uint64(len(distinct)))
			for k := range hosts {
				host := domain
				switch {
				case k == 0 && !bare:
					host = "www." + domain
				case k > 0:
					sub := distinct[(start+k)%len(distinct)]
					if sub == "www" && !bare {
						continue
					}
					host = sub + "." + domain
				}
				if rank++; rank > n || !yield(rank, host) {
					return
				}
			}
		}
	}
}

// domainName returns the i-th registrable domain.
func domainName(seed, i uint64) string {
	pairs := uint64(len(nameFirst) * len(nameSecond))
	round := i / pairs
	// A step coprime to the number of pairs visits each pair once a round.
	step := mix(seed+5)%pairs | 1
	for gcd(step, pairs) != 1 {
		step += 2
	}
	at := (mix(seed+6)%pairs + i%pairs*step) % pairs
	label := nameFirst[at/uint64(len(nameSecond))] + nameSecond[at%uint64(len(nameSecond))]
	if round > 0 {
		label += strconv.FormatUint(round+1, 10)
	}
	h := mix(mix(seed+4) + i)
	if h%100 == 0 {
		word := nameIDN[h>>8%uint64(len(nameIDN))]
		if ascii, err := idna.ToASCII(label + "-" + word); err == nil {
			label = ascii
		}
	}
	total := 0
	for _, e := range nameEndings {
		total += e.weight
	}
	left := int(h >> 32 % uint64(total))
	for _, e := range nameEndings {
		if left -= e.weight; left < 0 {
			return label + "." + e.ending
		}
	}
	return label + ".com"
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
