package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// What the link does to each packet, one way.
const (
	linkLoss  = 0.02
	linkDelay = 25 * time.Millisecond
	linkRate  = 50_000_000 / 8 // bytes a second
	linkQueue = 1000           // packets that wait; more are lost
)

// network is two network namespaces with a link between them, over which all of 127.0.0.0/8 but its own is reached from the near
// one: the simulated web lives there.
type network struct {
	near, far string
	says      string // what kind of link it is
	wrapErr   error

	tunnels []*os.File
	stop    context.CancelFunc
}

// newNetwork makes one. It needs root.
func newNetwork(ctx context.Context) (n *network, err error) {
	n = &network{near: fmt.Sprintf("bulkscan-near-%d", os.Getpid()), far: fmt.Sprintf("bulkscan-far-%d", os.Getpid())}
	ctx, n.stop = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	for _, space := range []string{n.near, n.far} {
		if err := command(ctx, "ip", "netns", "add", space); err != nil {
			return n, err
		}
	}
	near, far, err := n.link(ctx)
	if err != nil {
		return n, err
	}
	for _, line := range []string{
		"ip -n NEAR addr add 10.99.0.1 peer 10.99.0.2 dev near",
		"ip -n FAR addr add 10.99.0.2 peer 10.99.0.1 dev far",
		// Addresses of loopback are refused from outside unless the device is told otherwise; in the near namespace nothing else
		// has them, since its own loopback is down.
		"ip netns exec NEAR sysctl -qw net.ipv4.conf.near.route_localnet=1 net.ipv4.conf.near.rp_filter=0 net.ipv4.conf.all.rp_filter=0",
		"ip netns exec FAR sysctl -qw net.ipv4.conf.far.route_localnet=1 net.ipv4.conf.far.rp_filter=0 net.ipv4.conf.all.rp_filter=0",
		"ip -n NEAR link set near up",
		"ip -n FAR link set far up",
		"ip -n FAR link set lo up",
		"ip -n NEAR route add 127.0.0.0/8 dev near via 10.99.0.2",
	} {
		line = strings.NewReplacer("NEAR", n.near, "FAR", n.far, " dev near", " dev "+near, " dev far", " dev "+far,
			"set near", "set "+near, "set far", "set "+far, "conf.near", "conf."+near, "conf.far", "conf."+far).Replace(line)
		if err := command(ctx, strings.Fields(line)...); err != nil {
			return n, err
		}
	}
	return n, nil
}

// link connects the namespaces: by the system's own network emulation where the kernel has it, and else by a tunnel through this
// process.
func (n *network) link(ctx context.Context) (near, far string, err error) {
	near, far = fmt.Sprintf("bsn%d", os.Getpid()), fmt.Sprintf("bsf%d", os.Getpid())
	emulated := command(ctx, "ip", "-n", n.near, "link", "add", near, "type", "veth", "peer", "name", far, "netns", n.far)
	for space, device := range map[string]string{n.near: near, n.far: far} {
		if emulated == nil {
			emulated = command(ctx, "tc", "-n", space, "qdisc", "add", "dev", device, "root", "netem",
				"loss", fmt.Sprintf("%v%%", linkLoss*100), "delay", linkDelay.String(), "rate", fmt.Sprintf("%dbit", linkRate*8), "limit", fmt.Sprint(linkQueue))
		}
	}
	if emulated == nil {
		n.says = fmt.Sprintf("The kernel's netem, both ways: %v %% of the packets are lost, the others take %v, at %d Mbit/s", linkLoss*100, linkDelay, linkRate*8/1_000_000)
		return near, far, nil
	}
	_ = command(ctx, "ip", "-n", n.near, "link", "del", near) // it may not be there
	n.says = fmt.Sprintf("This kernel has no netem, so packets go through a tunnel of this program's own. Both ways %v %% of them are lost, the others take %v, at %d Mbit/s",
		linkLoss*100, linkDelay, linkRate*8/1_000_000)
	for space, device := range map[string]string{n.near: near, n.far: far} {
		file, err := tunnel(device)
		if err != nil {
			return "", "", err
		}
		n.tunnels = append(n.tunnels, file)
		if err := command(ctx, "ip", "link", "set", device, "netns", space); err != nil {
			return "", "", err
		}
	}
	go carry(ctx, n.tunnels[0], n.tunnels[1], rand.New(rand.NewPCG(chaosSeed, 1)))
	go carry(ctx, n.tunnels[1], n.tunnels[0], rand.New(rand.NewPCG(chaosSeed, 2)))
	return near, far, nil
}

func (n *network) close() error {
	n.stop()
	var errs []error
	for _, file := range n.tunnels {
		errs = append(errs, file.Close())
	}
	for _, space := range []string{n.near, n.far} {
		if _, err := os.Stat("/run/netns/" + space); err == nil {
			errs = append(errs, command(context.Background(), "ip", "netns", "del", space))
		}
	}
	return errors.Join(errs...)
}

func command(ctx context.Context, words ...string) error {
	out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// tunnel makes a network device whose packets are read and written by us (Documentation/networking/tuntap.rst).
func tunnel(name string) (*os.File, error) {
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open /dev/net/tun: %w", err)
	}
	var request struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:syscall.IFNAMSIZ-1], name)
	request.flags = syscall.IFF_TUN | syscall.IFF_NO_PI
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("cannot make a tunnel: %w", errno)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// carry carries packets one way, as the link lets them.
func carry(ctx context.Context, from io.Reader, to io.Writer, dice *rand.Rand) {
	type packet struct {
		data []byte
		due  time.Time
	}
	line := make(chan packet, linkQueue)
	defer close(line)
	go func() {
		for p := range line {
			time.Sleep(time.Until(p.due))
			_, _ = to.Write(p.data) // a link that is down loses it
		}
	}()
	b := make([]byte, 64<<10)
	var free time.Time // when the link has sent all before
	for ctx.Err() == nil {
		n, err := from.Read(b)
		if err != nil {
			if errors.Is(err, os.ErrClosed) {
				return
			}
			time.Sleep(time.Millisecond) // it is not up yet
			continue
		}
		if dice.Float64() < linkLoss {
			continue
		}
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		free = free.Add(time.Duration(n) * time.Second / linkRate)
		select {
		case line <- packet{bytes.Clone(b[:n]), free.Add(linkDelay)}:
		default:
		}
	}
}
