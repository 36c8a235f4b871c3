package survey

import "testing"

func TestHistogram(t *testing.T) {
	var h histogram
	for i := 1; i <= 10_000; i++ {
		h.add(float64(i) / 10)
	}
	h.add(0) // not measured
	f := func(q, want float64) {
		t.Helper()
		if got := h.quantile(q); got < want*0.98 || got > want*1.02 {
			t.Errorf("quantile %v is %v, want %v within 2 %%", q, got, want)
		}
	}
	f(0.5, 500)
	f(0.99, 990)
	f(0.001, 1)
	f(1, 1000)
	if (&histogram{}).quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
}
