package simweb

import (
	"net"
	"testing"
	"time"
)

// TestWaited accepts two connections some time after they came, whatever was sent to the listener by then. Each came
// while it was dialled.
func TestWaited(t *testing.T) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var began, ended []time.Time
	for range 2 {
		began = append(began, time.Now())
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ended = append(ended, time.Now())
		time.Sleep(150 * time.Millisecond)
		if _, err := c.Write([]byte("GET")); err != nil {
			t.Fatal(err)
		}
	}
	const tick = 10 * time.Millisecond // of Linux's clock
	for i := range began {
		c, err := l.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		before := time.Now()
		long := waited(c)
		if long == 0 {
			t.Skip("this kernel does not note when a connection last sent something")
		}
		if earliest, latest := before.Add(-long-tick), time.Now().Add(tick-long); latest.Before(began[i]) ||
			earliest.After(ended[i]) {
			t.Errorf("connection %d has waited %v: it came from %v to %v, and was dialled from %v to %v", i, long, earliest,
				latest, began[i], ended[i])
		}
	}
}
