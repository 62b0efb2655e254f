package main

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/guest/guesttest"
)

// invoices reads the file that the demo enqueues, one run for each line.
func invoices(t *testing.T) []Invoice {
	t.Helper()
	f, err := os.Open("invoices.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var list []Invoice
	for _, row := range rows[1:] {
		fields := map[string]string{}
		for i, name := range rows[0] {
			fields[name] = row[i]
		}
		b, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		var in Invoice
		if err := json.Unmarshal(b, &in); err != nil {
			t.Fatal(err)
		}
		list = append(list, in)
	}
	return list
}

func TestEveryInvoiceEndsAsItShould(t *testing.T) {
	all := invoices(t)
	if len(all) != 300 {
		t.Fatalf("%d invoices", len(all))
	}
	posted, refused, retried, bodies := 0, map[string]int{}, 0, 0
	seen := map[string]bool{}
	for _, in := range all {
		if seen[in.ID] {
			t.Errorf("%s stands there twice, so its key would collapse it", in.ID)
		}
		seen[in.ID] = true
		r := guesttest.Run(t, "post-invoice", in, guesttest.Options{MaxAttempts: 5})
		bodies += len(r.Logs)
		if r.Attempts > 1 {
			retried++
		}
		if r.Err != nil {
			refused[abi.CodeOf(r.Err)]++
			if r.Attempts != 1 {
				t.Errorf("%s: %v took %d attempts to fail for good", in.ID, r.Err, r.Attempts)
			}
			continue
		}
		var p Posted
		if err := json.Unmarshal(r.Output, &p); err != nil || p.ID != in.ID || p.Cents <= 0 || p.Entry != "L-"+in.ID {
			t.Errorf("%s: %s, %v", in.ID, r.Output, err)
		}
		posted++
	}
	if posted != 292 || refused["X_CURRENCY_UNKNOWN"] != 5 || refused["X_AMOUNT_INVALID"] != 3 {
		t.Errorf("%d posted, refused %v", posted, refused)
	}
	t.Logf("%d posted, %d refused, %d retried, %d step bodies", posted, len(all)-posted, retried, bodies)
}

func TestAFlakyServiceRepeatsOneStepOnly(t *testing.T) {
	// 231 is a multiple of 7, 21 and 11: the rate service fails twice, and the
	// ledger is not busy any more by the time it is asked.
	r := guesttest.Run(t, "post-invoice", Invoice{ID: "INV-2026-0231", Currency: "EUR", Amount: "10.00"}, guesttest.Options{MaxAttempts: 5})
	count := map[string]int{}
	for _, l := range r.Logs {
		count[l.Text]++
	}
	if r.Err != nil || r.Attempts != 3 || count["body validate"] != 1 || count["body convert"] != 3 || count["body post"] != 1 {
		t.Errorf("%v after %d attempts, bodies %v", r.Err, r.Attempts, count)
	}
}

func TestMoney(t *testing.T) {
	for _, c := range []struct {
		amount, currency string
		cents            int64
		code             string
	}{
		{"1240.00", "EUR", 124_000, ""},
		{"0.01", "EUR", 1, ""},
		{"1000", "JPY", 545, ""},
		{"4300000.00", "COP", 99_760, ""},
		{"90071992547409.91", "GBP", 10_376_293_541_461_622, ""},
		{"1000.00", "JPY", 0, "X_AMOUNT_INVALID"},
		{"1.240,00", "EUR", 0, "X_AMOUNT_INVALID"},
		{"-15.00", "EUR", 0, "X_AMOUNT_INVALID"},
		{"+15.00", "EUR", 0, "X_AMOUNT_INVALID"},
		{".50", "EUR", 0, "X_AMOUNT_INVALID"},
		{"", "EUR", 0, "X_AMOUNT_INVALID"},
		{"99999999999999999999.00", "EUR", 0, "X_AMOUNT_INVALID"},
		{"1.00", "eur", 0, "X_CURRENCY_UNKNOWN"},
		{"1.00", "", 0, "X_CURRENCY_UNKNOWN"},
	} {
		r := guesttest.Run(t, "post-invoice", Invoice{ID: "INV-1", Amount: c.amount, Currency: c.currency}, guesttest.Options{})
		if got := abi.CodeOf(r.Err); got != c.code {
			t.Errorf("%q %q: %v", c.amount, c.currency, r.Err)
			continue
		}
		if c.code != "" {
			continue
		}
		var p Posted
		if err := json.Unmarshal(r.Output, &p); err != nil || p.Cents != c.cents {
			t.Errorf("%q %q: %d cents, want %d", c.amount, c.currency, p.Cents, c.cents)
		}
	}
}
