package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/jobrunner/runner/abi/guest"
)

// Money is an amount in the smallest unit of its currency.
type Money struct {
	Units    int64  `json:"units"`
	Currency string `json:"currency"`
}

// currency says how many decimals it has and what a million of its units cost
// in euro cents. The rates are fixed: a replay must find what the first attempt
// found, and so must a test.
type currency struct {
	decimals int
	perMega  int64
}

var currencies = map[string]currency{
	"EUR": {2, 1_000_000},
	"CHF": {2, 1_065_000},
	"GBP": {2, 1_152_000},
	"USD": {2, 858_000},
	"SEK": {2, 91_500},
	"DKK": {2, 133_900},
	"PLN": {2, 236_000},
	"COP": {2, 232},
	"JPY": {0, 545_000},
}

// parseMoney refuses what no retry can mend, each with its own code.
func parseMoney(amount, code string) (Money, error) {
	c, ok := currencies[code]
	if !ok {
		return Money{}, guest.Terminal(guest.Coded("X_CURRENCY_UNKNOWN",
			guest.WithFix(errors.New("unknown currency "+strconv.Quote(code)), "correct the invoice's currency, as in EUR, and enqueue it again")))
	}
	whole, fraction, _ := strings.Cut(amount, ".")
	digits := whole + fraction
	units, err := strconv.ParseUint(digits, 10, 53)
	if err != nil || len(fraction) != c.decimals || whole == "" {
		return Money{}, guest.Terminal(guest.Coded("X_AMOUNT_INVALID",
			guest.WithFix(errors.New(strconv.Quote(amount)+" is no amount in "+code), "correct the invoice's amount, as in 1240.00, and enqueue it again")))
	}
	return Money{Units: int64(units), Currency: code}, nil
}

// euroCents rounds half up.
func (m Money) euroCents() int64 {
	per := currencies[m.Currency].perMega
	// Split, so that no product overflows: per is below 2^21, units below 2^53.
	mega, rest := m.Units/1_000_000, m.Units%1_000_000
	return mega*per + (rest*per+500_000)/1_000_000
}
