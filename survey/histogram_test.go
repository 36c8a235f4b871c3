package survey

import "testing"

func TestHistogram(t *testing.T) {
	var h Histogram
	for i := 1; i <= 10_000; i++ {
		h.Add(float64(i) / 10)
	}
	h.Add(0) // not measured
	f := func(q, want float64) {
		t.Helper()
		if got, _ := h.Quantile(q); got < want*0.98 || got > want*1.02 {
			t.Errorf("quantile %v is %v, want %v within 2 %%", q, got, want)
		}
	}
	f(0.5, 500)
	f(0.99, 990)
	f(0.001, 1)
	f(1, 1000)
	if _, ok := (&Histogram{}).Quantile(0.5); ok {
		t.Error("a quantile of nothing")
	}
}
