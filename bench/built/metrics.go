package built

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// FreeAddr is an address of loopback at which a program may listen.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Metrics returns the values of metrics without labels that a program shows at its --metrics-addr, in the order of their names.
func Metrics(ctx context.Context, addr string, names ...string) ([]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	values, found := make([]float64, len(names)), 0
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		i := slices.Index(names, name)
		if i < 0 {
			continue
		}
		if values[i], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, err
		}
		found++
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if found < len(names) {
		return nil, fmt.Errorf("%d metrics of %d", found, len(names))
	}
	return values, nil
}
