// Command invoices is a handler module that posts one invoice to a ledger:
// three steps, some of which fail the way real ones do.
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o bin/invoices.wasm ./examples/invoices
package main

import (
	"errors"
	"time"

	"github.com/jobrunner/runner/abi/guest"
)

func init() {
	guest.Job("post-invoice", post)
	guest.Warm[Money]()
}

func main() {}

// Invoice is a line of invoices.csv, everything as text.
type Invoice struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Country  string `json:"country"`
	Currency string `json:"currency"`
	Amount   string `json:"amount"`
	Issued   string `json:"issued"`
	Due      string `json:"due"`
}

// Posted is what a run leaves behind.
type Posted struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"` // of a euro
	Entry string `json:"entry"` // in the ledger
}

func post(ctx *guest.Ctx, in Invoice) (Posted, error) {
	money, err := guest.Step(ctx, "validate", func() (Money, error) {
		ctx.Log("body validate")
		return parseMoney(in.Amount, in.Currency)
	})
	if err != nil {
		return Posted{}, err
	}
	cents, err := guest.Step(ctx, "convert", func() (int64, error) {
		ctx.Log("body convert")
		if err := rateService(ctx.Attempt(), in.ID); err != nil {
			return 0, err
		}
		return money.euroCents(), nil
	})
	if err != nil {
		return Posted{}, err
	}
	entry, err := guest.Step(ctx, "post", func() (string, error) {
		ctx.Log("body post")
		if err := ledger(ctx.Attempt(), in.ID); err != nil {
			return "", err
		}
		return "L-" + in.ID, nil
	})
	if err != nil {
		return Posted{}, err
	}
	return Posted{ID: in.ID, Cents: cents, Entry: entry}, nil
}

// rateService stands for an exchange rate service that drops connections: every
// seventh invoice fails on its first attempt, every 21st on its second too.
func rateService(attempt int, id string) error {
	n := number(id)
	if n%7 == 0 && attempt == 1 || n%21 == 0 && attempt == 2 {
		return guest.Coded("X_RATES_UNREACHABLE", errors.New("the rate service closed the connection"))
	}
	return nil
}

// ledger stands for a ledger that is busy and says for how long.
func ledger(attempt int, id string) error {
	if number(id)%11 == 0 && attempt == 1 {
		return guest.RetryAfter(guest.Coded("X_LEDGER_BUSY", errors.New("the ledger is closing a period")), 300*time.Millisecond)
	}
	return nil
}

// number is the last part of an id, 12 for INV-2026-0012, or 0.
func number(id string) int {
	n, factor := 0, 1
	for i := len(id) - 1; i >= 0 && id[i]-'0' <= 9; i-- {
		n += int(id[i]-'0') * factor
		factor *= 10
	}
	return n
}
