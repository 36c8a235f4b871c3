package main

import (
	"fmt"
	"math"

	"github.com/spf13/pflag"

	"github.com/bulkscan/bulkscan/inputs"
)

// rate is the value of a flag.
type rate struct {
	flag  string
	value float64
}

func checkRates(rates ...rate) error {
	for _, r := range rates {
		if !(r.value >= 0 && r.value <= math.MaxFloat64) { // not a number is none of them
			return usagef("--%s %v: a rate is a number from 0 on; 0 means no limit", r.flag, r.value)
		}
	}
	return nil
}

// ratesFlag is --rates, of scan and plan.
type ratesFlag struct {
	file  string
	rates *inputs.Rates // after readRates; nil without a file
}

func (f *ratesFlag) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "rates", "",
		"file of rates, one a line: of an address range, as in 192.0.2.0/24 50, for each of its addresses instead of --ip-rate; of a domain, as in example.com 2, for all its hosts together instead of --host-rate. docs/configuration.md describes it")
}

// readRates reads the file.
func (f *ratesFlag) readRates() (err error) {
	if f.file == "" {
		return nil
	}
	if f.rates, err = inputs.ReadRates(f.file); err != nil {
		err = fmt.Errorf("--rates: %w", err)
	}
	return usage(err)
}
