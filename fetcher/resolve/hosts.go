package resolve

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
)

// maxHostsFile bounds how much of a hosts file is read, in bytes.
const maxHostsFile = 16 << 20

// readHosts reads a file of hosts(5). A missing file counts as empty.
func readHosts(path string) (map[string][]netip.Addr, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read hosts file: %w", err)
	}
	defer file.Close()
	hosts := make(map[string][]netip.Addr)
	lines := bufio.NewScanner(io.LimitReader(file, maxHostsFile))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		addr, err := netip.ParseAddr(fields[0])
		if err != nil || addr.Zone() != "" {
			continue
		}
		for _, name := range fields[1:] {
			name = strings.ToLower(strings.TrimSuffix(name, "."))
			hosts[name] = append(hosts[name], addr.Unmap())
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read hosts file: %w", err)
	}
	return hosts, nil
}

var loopback = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// local returns the addresses of a local name, of the wanted family, IPv4 first. Local names are those of the hosts
// file, and localhost with all names below it, which never go to DNS (RFC 6761 §6.3).
func (r *Resolver) local(host string) ([]netip.Addr, bool) {
	addrs, ok := r.hosts[host]
	if !ok {
		if host != "localhost" && !strings.HasSuffix(host, ".localhost") {
			return nil, false
		}
		addrs = loopback
	}
	var four, six []netip.Addr
	for _, addr := range addrs {
		if addr.Is4() {
			four = append(four, addr)
		} else {
			six = append(six, addr)
		}
	}
	switch {
	case r.opts.IPv4:
		return four, true
	case r.opts.IPv6:
		return six, true
	}
	return append(four, six...), true
}
