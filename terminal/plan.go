package terminal

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/bulkscan/bulkscan/scan/shares"
)

// Plan says what a scan in shares of these lists needs.
func Plan(out io.Writer, p *shares.Plan, lists []string) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "%d sites; of %d that were looked up, %d have an address\n", p.Sites, p.Sampled, p.Resolved)
	if len(p.Busiest) > 0 {
		fmt.Fprintf(w, "\n%15s  %s\n", "sites, about", "address")
		for _, b := range p.Busiest {
			fmt.Fprintf(w, "%15d  %s", b.Sites, b.Name())
			switch b.Rate {
			case p.IPRate:
			case 0:
				fmt.Fprint(w, ", no limit")
			default:
				fmt.Fprintf(w, ", %v a second", b.Rate)
			}
			fmt.Fprintln(w)
		}
	}
	if p.Floor > 0 {
		fmt.Fprintf(w, "\nAt these rates %s takes at least %.1f h, however many tasks there are.\n", Line(p.FloorOf),
			p.Floor)
	}
	list := Line(lists[0])
	if len(lists) > 1 || strings.ContainsAny(list, ", '\"") {
		list = "LIST"
	}
	if p.Shares == 1 {
		fmt.Fprintf(w, "\nOne machine is enough:\nbulkscan scan %s -o OUT\n", list)
		return w.Flush()
	}
	fmt.Fprintf(w, "\n%d shares for %d tasks at once, of about %d sites each.\n", p.Shares, p.Workers,
		p.Sites/int64(p.Shares))
	if len(p.Large) > 0 {
		fmt.Fprintf(w, "Domains of more than a tenth of that, each of which is in one share:\n")
		for i, d := range p.Large {
			if i == 20 {
				fmt.Fprintf(w, "%15s  and %d more; --json has all\n", "", len(p.Large)-i)
				break
			}
			fmt.Fprintf(w, "%15d  %s\n", d.Sites, Line(d.Domain))
		}
	}
	fmt.Fprintf(w, "\nsbatch --array=0-%d%%%d --export=ALL,WORKERS=%d,LIST=%s,OUT=OUT deploy/slurm/scan.sbatch\n",
		p.Shares-1, p.Workers, p.Workers, list)
	fmt.Fprintf(w, "On Kubernetes: completions and BULKSCAN_SHARES %d, parallelism and BULKSCAN_WORKERS %d.\n", p.Shares,
		p.Workers)
	return w.Flush()
}
